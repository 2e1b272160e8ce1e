"""Where ops run: by their own `mode`, and by where the values they read are computed."""

from __future__ import annotations

import pytest

from graphspec import load
from graphspec.analysis.modes import find_reaches


def _reach(small, ops, name):
    return sorted(find_reaches(load(small(ops=ops)))[name].modes)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("train", ["train"]),
        ("[train, test]", ["test", "train"]),
        ('"!eval"', ["infer", "test", "train"]),
        ('["!eval", "!test"]', ["infer", "train"]),
        ('[train, "!train"]', []),
    ],
)
def test_mode_words_select_modes(small, mode, expected):
    assert _reach(small, f"a: {{call: relu, inputs: x, mode: {mode}}}", "a") == expected


@pytest.mark.parametrize(
    "line", ["a: {update: net, loss: err}", "a: {ema: net, decay: 0.9}", "a: {copy: net, into: other}"]
)
def test_writers_of_models_run_in_train_mode_unless_they_say_so(small, line):
    assert _reach(small, line, "a") == ["train"]


def test_an_op_without_mode_runs_where_all_its_inputs_are_computed(small):
    ops = "a: {call: relu, inputs: x, mode: [train, eval]}\nb: {call: relu, inputs: a}\nc: {call: add, inputs: [b, x]}"
    assert _reach(small, ops, "c") == ["eval", "train"]


def test_reach_does_not_depend_on_the_listing(small):
    ops = "c: {call: relu, inputs: b}\nb: {call: relu, inputs: a}\na: {call: relu, inputs: x, mode: eval}"
    assert _reach(small, ops, "c") == ["eval"]


def test_a_circle_of_values_ends_the_search(small):
    assert _reach(small, "a: {call: add, inputs: [b, x]}\nb: {call: relu, inputs: a}", "a") == [
        "eval",
        "infer",
        "test",
        "train",
    ]


def test_an_update_of_a_value_from_another_mode_is_refused_with_the_op_in_the_way(small, find):
    ops = "a: {forward: other, inputs: x, mode: eval}\nb: {loss: mse, inputs: [a, a]}\nc: {update: other, loss: «b»}"
    found = find(small(ops=ops))
    assert found.codes == ("GS119",)
    assert found.places == found.marks
    assert "runs in train mode, where 'b' is not computed" in found.diagnostics[0].message
    assert found.diagnostics[0].notes == ("'b' needs 'a', and op 'a' runs in eval mode only",)


def test_values_that_are_never_computed_together_are_reported_where_they_meet(small, find):
    ops = (
        "a: {call: relu, inputs: x, mode: train}\n"
        "b: {call: relu, inputs: x, mode: eval}\n"
        "«c»: {call: add, inputs: [a, b]}\n"
        "d: {call: relu, inputs: c}"
    )
    found = find(small(ops=ops))
    assert found.codes == ("GS119",)
    assert found.places == found.marks
    assert found.diagnostics[0].notes == ("op 'a' runs in train mode only", "op 'b' runs in eval mode only")
