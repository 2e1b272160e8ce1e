"""A report tells how long the gradients of an update are, where the step is built to; numbers worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from compiler import compile_step
from graphspec import load
from runtime import Step, build
from tests.features.steps import build_step
from tests.features.waiting import counted

SPEC = """
graphspec: 1
name: lengths
inputs: {x: {shape: [batch, 2]}}
models:
  a: {layers: [{linear: {out: 1, bias: false}}], optimizer: {name: sgd, lr: 0.5}}
  b: {layers: [{linear: {out: 1, bias: false}}], optimizer: {name: sgd, lr: 0.5}}
ops:
  p: {forward: a, inputs: x}
  q: {forward: b, inputs: x}
  low: {loss: wasserstein, inputs: p}
  high: {loss: wasserstein, inputs: q, weight: 2.0}
  step_a: {update: a, loss: low}
  step_b: {update: b, loss: high}
"""
APART = "  step_a: {update: a, loss: low}\n  step_b: {update: b, loss: high}"
BATCH = {"x": np.array([[3.0, 4.0]])}
"""The loss is the mean of -w . x: its slope is -x, 5 long."""


def measuring(backend: str, settings: Sequence[str] = (), text: str = SPEC) -> Step:
    return build(compile_step(load(text, settings), backend), device="cpu", dtype="float64", norms=True)


def norms(step: Step, batch: dict[str, np.ndarray] = BATCH) -> dict[str, float | None]:
    step(batch)
    return {name: update.gradient_norm for name, update in step.report.updates.items()}


def test_each_update_tells_the_length_of_its_own_gradients(backend: str) -> None:
    step = measuring(backend)
    assert step.report.updates == {}
    assert norms(step) == {"step_a": pytest.approx(5.0), "step_b": pytest.approx(10.0)}
    assert norms(step, {"x": np.array([[0.3, 0.4], [0.3, 0.4]])}) == pytest.approx({"step_a": 0.5, "step_b": 1.0})


def test_nobody_measures_unasked(backend: str) -> None:
    step = build_step(SPEC, backend)
    assert norms(step) == {"step_a": None, "step_b": None}
    assert "norms" not in step.source.lower()


def test_gradients_are_measured_before_they_are_clipped(backend: str) -> None:
    clipped = norms(measuring(backend, ["ops.step_a.clip={norm: 1.0}", "ops.step_b.clip={value: 0.5}"]))
    assert clipped == pytest.approx({"step_a": 5.0, "step_b": 10.0})


def test_an_update_of_two_models_measures_them_together(backend: str) -> None:
    text = SPEC.replace(APART, "  both: {call: add, inputs: [low, high]}\n  step: {update: [a, b], loss: both}")
    for settings in ((), ("ops.step.clip={norm: 1.0}",)):
        assert norms(measuring(backend, settings, text)) == {"step": pytest.approx(math.sqrt(125))}


def test_gradients_of_two_sets_are_measured_together(backend: str) -> None:
    given = "  g: {gradient: low, wrt: a}\n  h: {gradient: high, wrt: b}\n  step: {update: [a, b], gradients: [g, h]}"
    text = SPEC.replace(APART, given)
    assert norms(measuring(backend, (), text)) == {"step": pytest.approx(math.sqrt(125))}


def test_a_window_is_measured_when_it_is_applied(backend: str) -> None:
    step = measuring(backend, ["ops.step_a.accumulate=2"])
    assert norms(step) == {"step_a": None, "step_b": pytest.approx(10.0)}
    found = norms(step, {"x": np.array([[1.0, 0.0]])})
    assert found == pytest.approx({"step_a": math.hypot(2.0, 2.0), "step_b": 2.0})


def test_a_loss_scale_is_not_part_of_a_length(backend: str) -> None:
    step = measuring(backend, ["precision={loss_scale: 1024}"])
    assert norms(step) == pytest.approx({"step_a": 5.0, "step_b": 10.0})


def test_an_update_that_is_held_tells_the_length_that_held_it(backend: str) -> None:
    step = measuring(backend, ["precision={loss_scale: 1024}"])
    found = norms(step, {"x": np.array([[math.inf, 0.0]])})
    assert step.report.updates["step_a"].skipped
    assert found == {"step_a": math.inf, "step_b": math.inf}


def test_a_window_with_nothing_in_it_has_no_length(backend: str) -> None:
    step = measuring(backend, ["precision={loss_scale: 1024}", "ops.step_a.accumulate=2"])
    for _ in range(2):
        found = norms(step, {"x": np.array([[math.inf, 0.0]])})
    assert step.report.updates["step_a"].skipped
    assert found["step_a"] is None


def test_gradients_that_are_absent_have_no_length(backend: str) -> None:
    text = SPEC.replace("lr: 0.5}}", "lr: 0.5}, groups: [{match: ., frozen: {until: 2 steps}}]}", 1)
    step = measuring(backend, ["ops.step_a.accumulate=2"], text)
    found = [norms(step)["step_a"] for _ in range(4)]
    assert found == [None, 0.0, None, pytest.approx(5.0)]


def test_micro_batches_are_measured_as_one(backend: str) -> None:
    step = measuring(backend, ["micro_batches=2"])
    found = norms(step, {"x": np.array([[1.0, 0.0], [3.0, 0.0], [5.0, 8.0], [7.0, 8.0]])})
    assert found == pytest.approx({"step_a": math.hypot(4.0, 4.0), "step_b": 2 * math.hypot(4.0, 4.0)})


def test_a_length_waits_for_nothing_until_it_is_read(backend: str) -> None:
    step = measuring(backend)
    step(BATCH)
    with counted(backend) as seen:
        step(BATCH)
    assert seen == []
    assert step.report.updates["step_a"].gradient_norm == pytest.approx(5.0)
