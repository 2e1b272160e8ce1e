"""Steps, updates and fired ops are counted per step and per optimizer, and reported for each update."""

from __future__ import annotations

import pytest

from runtime import UpdateReport
from tests.features.steps import build_step
from tests.features.test_written_out_update import SHORT

pytestmark = pytest.mark.row("D6")

SPEC = """
graphspec: 1
name: counters
models:
  a: {parameter: {shape: [], init: 1.0}, optimizer: {name: sgd, lr: {schedule: linear, from: 1.0, to: 0.0, over: 8}}}
  b: {parameter: {shape: [], init: 1.0}, optimizer: {name: sgd, lr: 0.5}}
  c: {parameter: {shape: [], init: 1.0}, optimizer: {name: sgd, lr: 0.5}}
ops:
  x: {forward: a}
  y: {forward: b}
  z: {forward: c}
  left: {call: sum, inputs: x}
  middle: {call: sum, inputs: y}
  right: {call: sum, inputs: z}
  slow: {update: a, loss: left, every: 2}
  late: {update: b, loss: middle, start: 3 steps, until: 4 steps}
  tail: {update: c, loss: right, every: slow}
outputs: [left]
"""


def test_the_counter_of_tensorflows_own_example_is_one(backend: str) -> None:
    step = build_step(SHORT, backend)
    assert (step.report.step, step.optimizers["v0"].iterations) == (0, 0)
    step({})
    assert (step.report.step, step.optimizers["v0"].iterations, step.optimizers["v1"].iterations) == (1, 1, 1)


def test_every_optimizer_counts_the_updates_that_it_applied(backend: str) -> None:
    step = build_step(SPEC, backend)
    for _ in range(5):
        step({})
    step({}, mode="eval")
    assert {name: each.iterations for name, each in step.optimizers.items()} == {"a": 2, "b": 2, "c": 2}


FIRED = [
    (1, {"slow": (False, "every 2 steps"), "late": (False, "it starts at step 3")}),
    (2, {"slow": (True, "every 2 steps"), "tail": (True, "it follows 'slow'")}),
    (3, {"late": (True, "every step from step 3 on through step 4")}),
    (3, {"tail": (False, "it follows 'slow', which did not fire")}),
    (5, {"late": (False, "it ended with step 4")}),
]


@pytest.mark.parametrize(("number", "expected"), FIRED)
def test_a_report_says_why_an_update_fired_or_did_not(number: int, expected: object, backend: str) -> None:
    step = build_step(SPEC, backend)
    for _ in range(number):
        step({})
    found = {name: (each.fired, each.reason) for name, each in step.report.updates.items() if name in expected}
    assert found == expected


def test_a_report_tells_the_updates_and_the_rate_of_an_update_that_fired(backend: str) -> None:
    step = build_step(SPEC, backend)
    for _ in range(4):
        step({})
    slow = step.report.updates["slow"]
    told = {"iterations": {"a": 2}, "learning_rates": {"a": 0.875}}
    assert slow == UpdateReport(name="slow", fired=True, reason="every 2 steps", **told)
    step({})
    assert step.report.updates["slow"].learning_rates == {}


def test_a_rate_set_between_a_step_and_its_report_is_not_the_one_that_was_used(backend: str) -> None:
    step = build_step(SPEC, backend)
    for _ in range(4):
        step({})
    step.optimizers["a"].learning_rate = 7.0
    step.optimizers["b"].learning_rate = 7.0
    assert step.report.updates["slow"].learning_rates == {"a": 0.875}
    assert step.report.updates["late"].learning_rates == {"b": 0.5}


def test_no_update_fires_in_an_evaluation(backend: str) -> None:
    step = build_step(SPEC, backend)
    step({}, mode="eval")
    assert step.report.fired == ()
    assert {each.reason for each in step.report.updates.values()} == {"it does not run in mode eval"}
