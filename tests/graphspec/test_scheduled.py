"""Schedules of ops: in which fields one may stand, which clock it has there, and what is told where none may."""

from __future__ import annotations

import pytest

from compiler.timing.curves import find_op_schedules
from graphspec import load
from graphspec.write.render import render

CURVE = "{schedule: linear, from: 1, to: 0.5, over: 9}"
PLACES = [
    ("a: {schedule: linear, from: 1, to: 0.5, over: 9}", (), "steps"),
    (f"a: {{loss: mse, inputs: [x, 0.5], weight: {CURVE}}}", ("weight",), "steps"),
    (f"a: {{loss: mse, inputs: [x, {CURVE}]}}", ("inputs", 1), "steps"),
    (f'a: {{call: "my:fn", inputs: {{u: x, v: {CURVE}}}}}', ("inputs", "v"), "steps"),
    (f"a: {{loss: huber, inputs: [x, x], args: {{delta: {CURVE}}}}}", ("args", "delta"), "steps"),
    (f"a: {{random: normal, like: x, args: {{std: {CURVE}}}}}", ("args", "std"), "steps"),
    (f"a: {{ema: net, decay: {CURVE}}}", ("decay",), "steps"),
    (f"a: {{ema: net, tau: {CURVE}}}", ("tau",), "steps"),
    (f"a: {{update: net, loss: err, clip: {{norm: {CURVE}}}}}", ("clip", "norm"), "updates"),
]


@pytest.mark.parametrize(("line", "place", "clock"), PLACES)
def test_a_schedule_is_found_at_its_place_with_its_clock(small, line, place, clock):
    ((found, schedule),) = find_op_schedules(load(small(ops=line)).ops["a"])
    assert (found, schedule.clock) == (place, clock)
    assert schedule.fields == {"from": 1, "to": 0.5, "over": 9}


@pytest.mark.parametrize("line", [line for line, _, _ in PLACES])
def test_what_is_rendered_reads_as_it_was(small, line):
    spec = load(small(ops=line))
    again = load(render(spec))
    assert render(again) == render(spec)
    assert dict(find_op_schedules(again.ops["a"])) == dict(find_op_schedules(spec.ops["a"]))


def test_every_of_a_schedule_is_that_of_its_curve(small):
    op = load(small(ops="a: {schedule: step, from: 1, factor: 0.5, every: 100}")).ops["a"]
    assert (op.every, op.curve.every) == (None, 100)


def test_the_schedules_of_an_optimizer_are_its_own(small):
    line = f"a: {{update: net, loss: err, optimizer: {{name: sgd, lr: {CURVE}}}}}"
    assert list(find_op_schedules(load(small(ops=line)).ops["a"])) == []


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("a: {call: mean, inputs: x, args: {axis: «{schedule: constant, value: 1}»}}", "GS113", "takes no schedule"),
        ("a: {metric: mean, inputs: x, args: {k: «{schedule: constant, value: 1}»}}", "GS044", "is read once"),
        ("a: {ema: net, tau: {schedule: linear, from: «1.5», over: 9}}", "GS044", "at most 1"),
        (
            "a: {update: net, loss: err, clip: {norm: {schedule: linear, from: 1, to: «0», over: 9}}}",
            "GS044",
            "greater",
        ),
        (
            "a: {loss: huber, inputs: [x, x], args: {delta: {schedule: constant, value: «0»}}}",
            "GS113",
            "greater than 0",
        ),
        ("a: {schedule: constant, value: 1, clock: «updates»}", "GS053", "counts those of an optimizer"),
        ("a: {ema: net, decay: {schedule: constant, value: 1, clock: «updates»}}", "GS053", "belongs to none"),
        ("a: {ema: net, decay: «{schedule: cosine, from: 0.9, over: 9}»}", "GS053", "schedule of a decay needs `to`"),
        ("a: {update: [net, other], loss: err, clip: {norm: «{schedule: constant, value: 1}»}}", "GS053", "several"),
        ("a: {schedule: constant, value: 1, «start»: 5}", "GS053", "has no `start`"),
        ("a: {schedule: cosine, «form»: 1, from: 2, over: 9}", "GS040", "unknown key 'form'"),
    ],
)
def test_a_schedule_where_none_may_stand_is_told_there(small, find, line, code, message):
    found = find(small(ops=line))
    assert found.codes == (code,)
    assert found.places == found.marks
    assert message in found.diagnostics[0].message


def test_a_decay_that_changes_is_not_raised_to_a_power(small, find):
    line = f"a: {{ema: net, every: 2, decay: {CURVE}, interval_correction: «compound»}}"
    found = find(small(ops=line))
    assert (found.codes, found.places) == (("GS053",), found.marks)
