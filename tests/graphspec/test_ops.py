"""Ops: their kind is their one kind key, their fields are closed, and they say what they mention and define."""

from __future__ import annotations

import pytest

from graphspec import load
from graphspec.declare.durations import Duration
from graphspec.declare.ops import KINDS
from tests.graphspec.kinds import LINES


def _op(small, line):
    return load(small(ops=line, more="state: {held: {shape: []}}\n")).ops["a"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_key_makes_the_kind(small, kind):
    op = _op(small, LINES[kind])
    assert op.kind == kind
    assert type(op) is KINDS[kind]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        (LINES["forward"], ("a",)),
        ("a: {forward: other, inputs: x, outputs: [mu, {h: {tap: layer4}}, {k: {tap: 2}}]}", ("mu", "h", "k")),
        ("a: {forward: other, inputs: x, outputs: mu}", ("mu",)),
        ("a: {call: split, inputs: x, args: {sections: 2}, outputs: [p, q]}", ("p", "q")),
        (LINES["gradient"], ("a",)),
        (LINES["update"], ()),
        (LINES["ema"], ()),
        (LINES["copy"], ()),
        (LINES["metric"], ("a",)),
    ],
)
def test_an_op_defines_its_outputs_or_its_name_and_a_writer_nothing(small, line, names):
    assert _op(small, line).defines("a") == names


def test_taps_name_inner_layers(small):
    op = _op(small, "a: {forward: other, inputs: x, outputs: [mu, {h: {tap: layer4}}, {k: {tap: 2}}]}")
    assert [output.tap for output in op.outputs] == [None, "layer4", "2"]


@pytest.mark.parametrize(
    ("line", "mentions"),
    [
        ("a: {forward: other, inputs: {image: x}, after: fit}", ["forward: other", "inputs.image: x", "after.0: fit"]),
        ("a: {call: where, inputs: [x, 1, true]}", ["inputs.0: x"]),
        ("a: {gradient: err, wrt: [x, net], outputs: [p, q]}", ["gradient: err", "wrt.0: x", "wrt.1: net"]),
        ("a: {update: net, loss: err, every: fit}", ["update.0: net", "loss: err", "every: fit"]),
        (LINES["ema"], ["ema: net", "into: other"]),
        (LINES["copy"], ["copy: net", "into: other"]),
        (LINES["random"], ["like: x"]),
    ],
)
def test_an_op_tells_every_name_it_mentions_and_where(small, line, mentions):
    found = [f"{'.'.join(map(str, mention.path))}: {mention.name}" for mention in _op(small, line).references()]
    assert found == mentions


def test_inputs_are_one_reference_a_list_or_keywords(small):
    assert _op(small, "a: {forward: other, inputs: x}").inputs.positional == ("x",)
    assert _op(small, "a: {forward: other, inputs: [x, 2, 0.5, false]}").inputs.positional == ("x", 2, 0.5, False)
    assert _op(small, "a: {forward: other, inputs: {p: x, q: 1}}").inputs.keyword == {"p": "x", "q": 1}
    assert len(_op(small, "a: {forward: other}").inputs) == 0


def test_after_tells_unwritten_from_empty(small):
    assert _op(small, "a: {forward: net, inputs: x}").after is None
    assert _op(small, "a: {forward: net, inputs: x, after: []}").after == ()
    assert _op(small, "a: {forward: net, inputs: x, after: fit}").after == ("fit",)


def test_steps_are_read_as_durations(small):
    op = _op(small, "a: {update: net, loss: err, start: 10, until: 20ba, every: 3}")
    assert (op.start, op.until) == (Duration(count=10, unit="steps"), Duration(count=20, unit="steps"))
    assert op.every == 3


@pytest.mark.parametrize(
    ("line", "correction"),
    [
        ("a: {ema: net, half_life: 500}", "compound"),
        ("a: {ema: net, decay: 0.9}", "none"),
        ("a: {ema: net, tau: 0.1}", "none"),
        ("a: {ema: net, tau: 0.1, interval_correction: compound}", "compound"),
    ],
)
def test_an_interval_corrects_half_lives_unless_told_otherwise(small, line, correction):
    op = _op(small, line)
    assert op.correction == correction
    assert op.target("a") == "a"


def test_a_half_life_counts_updates(small):
    assert _op(small, "a: {ema: net, half_life: 500}").half_life == Duration(count=500, unit="updates")


def test_a_function_is_of_the_library_or_has_a_path_for_each_backend(small):
    assert _op(small, "a: {loss: mse, inputs: [x, x]}").loss.is_builtin
    loss = _op(small, "a: {loss: {torch: my:a, tensorflow: my:b}, inputs: [x, x]}").loss
    assert (loss.is_builtin, loss.name("torch"), loss.name("tensorflow")) == (False, "my:a", "my:b")
    only = _op(small, "a: {call: {torch: my:a}, inputs: x}").call
    assert only.find("tensorflow") is None
    with pytest.raises(LookupError, match="no function for backend 'tensorflow'"):
        only.name("tensorflow")


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("a: {«inptus»: x, forward: net}", "GS040", "unknown key 'inptus'"),
        ("a: {«foward»: net, inputs: x}", "GS051", "no kind of op is named 'foward'"),
        ("«a»: {inputs: x}", "GS051", "this op has no kind"),
        ("a: «3»", "GS051", "expected an op"),
        ("a: {forward: net, «call»: add, inputs: x}", "GS052", "found `forward` and `call`"),
        ("a: {call: add, inputs: [x, x], «loss»: mse}", "GS052", "found `call` and `loss`"),
        ("a: {loss: mse, inputs: [x, x], «copy»: net}", "GS052", "found `loss` and `copy`"),
        ("a: {update: net, «gradient»: err, loss: err}", "GS052", "found `update` and `gradient`"),
        ("«a»: {update: net}", "GS053", "found neither"),
        ("«a»: {update: net, loss: err, gradients: g}", "GS053", "found both"),
        ("«a»: {ema: net, decay: 0.9, tau: 0.1}", "GS053", "found `decay` and `tau`"),
        ("a: {forward: net, inputs: x, «checkpoint»: true, stop: true}", "GS053", "no gradient runs through the call"),
        ("a: {forward: net, inputs: x, snapshot: true, «checkpoint»: true}", "GS053", "not a clone"),
        (
            "a: {forward: net, inputs: x, outputs: [a, {h: {tap: 0}}], «checkpoint»: true}",
            "GS053",
            "does not go with a tapped output",
        ),
        ("«a»: {random: normal}", "GS053", "a `shape` or a `like`, found neither"),
        ("a: {update: net, loss: err, «clip»: {norm: 1, value: 1}}", "GS053", "found `norm` and `value`"),
        ("a: {update: net, loss: err, «clip»: {per: parameter}}", "GS053", "found none of them"),
        ("a: {update: net, loss: err, «clip»: {agc: 1, per: parameter}}", "GS053", "goes with `norm`, found `agc`"),
        ("a: {update: net, loss: err, clip: «1.0»}", "GS041", "expected a mapping as `clip`"),
        ("a: {update: net, loss: err, accumulate: «'4'»}", "GS041", "a whole number from 1 up, or a mapping, as"),
        ("a: {update: net, loss: err, accumulate: «2.0»}", "GS041", "found the number 2.0"),
        ("a: {call: relu, inputs: x, every: «0»}", "GS057", "at least 1"),
        ("a: {call: relu, inputs: x, every: «2 steps»}", "GS057", "a whole number of steps"),
        ("a: {call: relu, inputs: x, every: «1.5»}", "GS057", "a whole number of steps"),
        ("a: {call: relu, inputs: x, start: «soon»}", "GS050", "expected a duration"),
        ("a: {call: relu, inputs: x, mode: «trian»}", "GS043", "'trian'"),
        ("a: {call: relu, inputs: x, mode: «[]»}", "GS044", "at least one mode"),
        ("a: {forward: other, inputs: [«[x]»]}", "GS044", "expected the name of a value, a number or a boolean"),
        ("a: {forward: other, inputs: x, outputs: [«3»]}", "GS044", "expected an output"),
        ("a: {forward: other, inputs: x, outputs: [b, «{h: layer4}»]}", "GS044", "expected an output"),
        ("a: {call: «a b:c», inputs: x}", "GS054", "expected the path of a function"),
        ("a: {random: normal, shape: [batch, «0»]}", "GS044", "expected a size, found 0"),
        ("a: {random: normal, shape: [«-1», 3]}", "GS044", "expected a size"),
    ],
)
def test_a_malformed_op_is_reported_where_it_is_malformed(small, find, line, code, message):
    found = find(small(ops=line))
    assert found.codes == (code,)
    assert found.places == found.marks
    assert message in found.diagnostics[0].message


@pytest.mark.parametrize(
    "line",
    [
        "a: {update: other, loss: err, «start»: {steps: 3}}",
    ],
)
def test_what_the_language_has_and_is_not_built_is_never_ignored(small, find, line):
    found = find(small(ops=line))
    assert found.codes == ("GS045",)
    assert found.places == found.marks
    assert "is part of the language but not built yet" in found.diagnostics[0].message
