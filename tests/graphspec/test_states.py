"""States: what may be declared, and what may be said of them where."""

from __future__ import annotations

import pytest

from graphspec import load
from graphspec.write.render import render
from tests.graphspec.conftest import write

STATE = "state: {center: {shape: [4]}, seen: {shape: [], dtype: int64}}\n"
MOVE = "mean: {call: mean, inputs: out, args: {axis: 0}}\nmove: {assign: center, value: mean}\n"


def test_a_state_and_its_assignment_are_read():
    spec = load(write(ops=MOVE, more=STATE))
    center, seen = spec.state["center"], spec.state["seen"]
    assert (center.shape, center.dtype, center.init) == ((4,), "float32", 0.0)
    assert (seen.shape, seen.dtype) == ((), "int64")
    assert (spec.ops["move"].assign, spec.ops["move"].value) == ("center", "mean")
    assert spec.ops["move"].runs_in("train")
    assert not spec.ops["move"].runs_in("eval")


def test_a_state_is_rendered_and_read_again():
    text = render(load(write(ops=MOVE, more=STATE)))
    assert render(load(text)) == text
    assert "  center: {shape: [4], dtype: float32, init: 0.0}\n" in text


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("q: {shape: [«batch», 4]}", "a state has fixed sizes, found the free size 'batch'"),
        ("q: {shape: [«0»]}", "expected a size, found 0"),
        ("q: {shape: [«true»]}", "expected a size, found True"),
        ("q: {shape: [], init: «unit_normal»}", "scales rows, and a single number has none"),
        ("q: {shape: [4], dtype: int64, init: «normal»}", "draws real numbers, which int64 cannot hold"),
        ("q: {shape: [4], dtype: int64, init: «0.5»}", "is not a number of type int64"),
        ("q: {shape: [4], init: {«schedule»: constant, value: 1}}", "a schedule"),
    ],
)
def test_what_no_state_can_be_is_told_where_it_is_written(find, declared, message):
    found = find(write(more=f"state:\n  {declared}\n"))
    assert message in " ".join(each.message for each in found.diagnostics)
    assert {place[0] for place in found.places} == {mark[0] for mark in found.marks}


@pytest.mark.parametrize(
    ("op", "code", "message"),
    [
        ("a: {assign: «centre», value: 0.0}", "GS104", "names 'centre', which is not declared; expected a state"),
        ("a: {assign: «x», value: 0.0}", "GS106", "must name a state, found 'x', an input"),
        ("a: {assign: «out», value: 0.0}", "GS106", "must name a state, found 'out', the value of an op"),
        ("a: {assign: «net», value: 0.0}", "GS106", "must name a state, found 'net', a model"),
        ("a: {assign: center, value: «nothing»}", "GS104", "names 'nothing', which is not declared"),
        ("a: {assign: center, value: «net»}", "GS106", "must name a value, found 'net', a model"),
        ("a: {gradient: err, wrt: «center»}", "GS106", "must name a model or a value, found 'center', a state"),
        ("a: {forward: «center», inputs: x}", "GS106", "must name a model, found 'center', a state"),
    ],
)
def test_a_name_of_something_else_is_told(find, op, code, message):
    found = find(write(ops=op, more=STATE))
    assert found.codes == (code,)
    assert found.places == found.marks
    assert message in found.diagnostics[0].message


def test_a_state_shares_no_name_with_an_op(find):
    found = find(write(ops="«center»: {call: relu, inputs: x}", more=STATE))
    assert found.codes == ("GS101",)
    assert "declared twice: as a state (line" in found.diagnostics[0].message


def test_a_state_that_cannot_be_read_is_still_a_state(find):
    found = find(write(ops=MOVE, more="state: {center: {«size»: [4]}}\n"))
    assert set(found.codes) == {"GS040", "GS042"}
