"""Slots are found by optimizer, parameter and slot name; slots that both backends keep hold the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.steps import build_step

pytestmark = pytest.mark.row("D7")

SPEC = """
graphspec: 1
name: slots
models:
  a: {parameter: {shape: [2], init: 1.0}, optimizer: {name: adam, lr: 0.1, betas: [0.5, 0.75]}}
  b: {parameter: {shape: [3], init: 1.0}}
ops:
  x: {forward: a}
  y: {forward: b}
  left: {call: sum, inputs: x}
  right: {call: sum, inputs: y}
  both: {call: add, inputs: [left, right]}
  step: {update: a, loss: left}
outputs: [left]
"""
JOINT = SPEC.replace(
    "{update: a, loss: left}",
    "{update: [a, b], loss: both, optimizer: {name: sgd, lr: 0.1, momentum: 0.5}}",
)
KEPT = {
    "adam": {"exp_avg", "exp_avg_sq"},
    "rmsprop": {"square_avg"},
    "adagrad": {"sum"},
    "adadelta": {"square_avg", "acc_delta"},
    "lion": {"exp_avg"},
    "sgd": set(),
}


def test_adams_slots_are_its_two_means(backend: str) -> None:
    step = build_step(SPEC, backend)
    step({})
    slots = step.optimizers["a"].slots
    assert list(slots) == ["value"]
    assert step.numpy(slots["value"]["exp_avg"]).tolist() == [0.5, 0.5]  # (1 - 0.5) of a slope of 1
    assert step.numpy(slots["value"]["exp_avg_sq"]).tolist() == [0.25, 0.25]


@pytest.mark.parametrize("rule", sorted(KEPT))
def test_slots_are_called_as_pytorch_calls_them(rule: str, backend: str) -> None:
    step = build_step(SPEC, backend, [f"models.a.optimizer={{name: {rule}}}"])
    step({})
    kept = step.optimizers["a"].slots.get("value", {})
    assert set(kept) - {"step"} == KEPT[rule]


def test_an_optimizer_of_two_models_names_parameters_with_their_model(backend: str) -> None:
    step = build_step(JOINT, backend)
    step({})
    step({})
    slots = step.optimizers["step"].slots
    assert list(slots) == ["a.value", "b.value"]
    assert step.numpy(slots["b.value"]["momentum_buffer"]).tolist() == [1.5, 1.5, 1.5]


def test_slots_are_copies_that_no_later_step_changes(backend: str) -> None:
    step = build_step(SPEC, backend)
    step({})
    before = step.optimizers["a"].slots["value"]["exp_avg"]
    step({})
    assert step.numpy(before).tolist() == [0.5, 0.5]
    after = step.numpy(step.optimizers["a"].slots["value"]["exp_avg"])
    assert np.array_equal(after, [0.75, 0.75])
