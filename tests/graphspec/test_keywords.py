"""Keys that become names of arguments are names: they stand in the emitted source as they are."""

from __future__ import annotations

import json

import pytest

from graphspec.diagnostics import SpecError
from graphspec.loading import load

CODE = "x=(__import__('os').abort(), 0)[1], y"
BROKEN = (CODE, "lambda", "None", "__debug__", "a-b", "a.b", "1a", "", "a ", "a\n", "ª", "*", "**kw", "a: int")
PLACES = {
    "args of a model": ("models", "net", "args"),
    "options of a class": ("models", "net", "optimizer"),
    "options of a class by epochs": ("models", "net", "optimizer", "1"),
    "options of an update": ("ops", "fit", "optimizer"),
    "inputs of a forward": ("ops", "y", "inputs"),
    "inputs of a call": ("ops", "made", "inputs"),
    "args of a call": ("ops", "made", "args"),
    "args of a built-in call": ("ops", "mean", "args"),
    "inputs of a loss": ("ops", "error", "inputs"),
    "args of a loss": ("ops", "error", "args"),
    "inputs of a metric": ("ops", "seen", "inputs"),
    "args of a metric": ("ops", "seen", "args"),
    "args of a transform": ("ops", "clipped", "args"),
    "args of a random": ("ops", "noise", "args"),
    "args of a data source": ("data", "train", "args"),
}


def write(place=(), key="fine"):
    """Return a spec as JSON that passes arguments everywhere, one of them by a key of its own at a place."""
    by_class = {"class": "zoo:Rule", "fine": 1}
    spec = {
        "graphspec": 1,
        "name": "a",
        "inputs": {"x": {"shape": ["batch", 4]}},
        "models": {"net": {"class": "zoo:Net", "args": {"fine": 1}, "optimizer": {"1": by_class}}},
        "ops": {
            "noise": {"random": "normal", "like": "x", "args": {}},
            "y": {"forward": "net", "inputs": {"fine": "x"}},
            "made": {"call": "zoo:make", "inputs": {"fine": "y"}, "args": {"other": 1}},
            "mean": {"call": "mean", "inputs": "made", "args": {}},
            "error": {"loss": "zoo:error", "inputs": {"fine": "y"}, "args": {"other": 1}},
            "seen": {"metric": "zoo:seen", "inputs": {"fine": "noise"}, "args": {"other": 1}},
            "slope": {"gradient": "error", "wrt": "net"},
            "clipped": {"transform": "zoo:clip", "inputs": "slope", "args": {"other": 1}},
            "fit": {"update": "net", "gradients": "clipped", "optimizer": {**by_class}},
        },
        "data": {"train": {"class": "zoo:Data", "batch": 2, "args": {"fine": 1}}},
        "outputs": ["mean", "made"],
    }
    if place == PLACES["options of a class"]:
        spec["models"]["net"]["optimizer"] = by_class
    target = spec
    for part in place:
        target = target[part]
    if place:
        target[key] = "x" if place[-1] == "inputs" else 0
    return json.dumps(spec, indent=1)


@pytest.mark.parametrize(
    ("place", "key"),
    [
        *((place, key) for place in PLACES.values() for key in (CODE, "lambda")),
        *((PLACES["args of a model"], key) for key in BROKEN),
    ],
)
def test_a_key_that_is_no_name_is_refused_with_a_caret_below_it(place, key):
    text = write(place, key)
    with pytest.raises(SpecError) as raised:
        load(text, name="a.json")
    found = [item for item in raised.value.diagnostics if item.code == "GS058"]
    assert len(found) == 1
    line = text.split("\n")[found[0].span.line - 1]
    assert line[found[0].span.column - 1 : found[0].span.end_column - 1] == json.dumps(key)


def test_the_other_keys_are_names_and_all_is_well():
    load(write())


def test_several_such_keys_of_one_optimizer_are_told_together():
    text = write().replace('"class": "zoo:Rule",', '"class": "zoo:Rule", "a b": 1, "c d": 2,', 1)
    with pytest.raises(SpecError) as raised:
        load(text)
    assert [item.code for item in raised.value.diagnostics] == ["GS058", "GS058"]


@pytest.mark.parametrize(
    ("args", "others", "place"),
    [
        ({"fine": 1}, {}, '    "fine": 1'),
        ({"reduction": 1}, {"reduction": "sum"}, '    "reduction": 1'),
        ({}, {"reduction": "sum", "inputs": {"reduction": "y"}}, '    "reduction": "y"'),
    ],
    ids=["by inputs", "by reduction", "reduction by inputs"],
)
def test_what_a_function_would_be_passed_twice_is_refused(args, others, place):
    spec = json.loads(write())
    spec["ops"]["error"] |= {"args": args, **others}
    text = json.dumps(spec, indent=1)
    with pytest.raises(SpecError) as raised:
        load(text)
    (found,) = raised.value.diagnostics
    assert found.code == "GS059"
    assert text.split("\n")[found.span.line - 1] == place
    if "reduction" not in others:
        made = {**spec["ops"]["error"], "call": "zoo:error"}
        del made["loss"]
        spec["ops"]["error"] = made
        with pytest.raises(SpecError, match=r"error\[GS059\]: the argument 'fine' is passed twice"):
            load(json.dumps(spec, indent=1))


def test_a_method_is_a_name():
    with pytest.raises(
        SpecError, match=r"error\[GS044\]: expected the name of a method, found the string 'a\(b\) or net'"
    ):
        load(write(("ops", "y"), "method").replace('"method": 0', '"method": "a(b) or net"'))


@pytest.mark.parametrize("path", ["zoo:Net\n", "zoo.class:Net", "zoo:lambda", "zoo:Net.None"])
def test_a_path_with_a_line_break_or_a_word_of_python_is_no_path(path):
    with pytest.raises(SpecError, match=r"error\[GS054\]"):
        load(write().replace('"zoo:Net"', json.dumps(path)))


@pytest.mark.parametrize("name", ["net\n", "__debug__"])
def test_a_name_with_a_line_break_and_a_name_that_python_keeps_are_no_names(name):
    with pytest.raises(SpecError, match=r"error\[GS102\]"):
        load(write().replace('"made"', json.dumps(name)))


@pytest.mark.parametrize("epoch", ["²", "1" * 500, "01"], ids=["superscript", "long", "zero"])
def test_an_odd_number_of_an_epoch_is_a_problem_of_the_spec(epoch):
    with pytest.raises(SpecError, match=r"error\[GS044\]: expected the epoch"):
        load(write().replace('"1": {', f'"{epoch}": "sgd", "1": {{'))
