"""`on_epoch_end`: a window that an epoch leaves open goes on, is applied, or is forgotten; metrics run for epochs."""

from __future__ import annotations

import numpy as np
import pytest

from graphspec import SpecError
from runtime import Step
from tests.features.cuts import assert_goes_on
from tests.features.paced import build_paced
from tests.features.steps import build_step, weights

SPEC = """
graphspec: 1
name: ends
inputs: {x: {shape: [batch]}}
models:
  net: {parameter: {shape: [], init: 0.0}, optimizer: {name: sgd, lr: 1.0}}
ops:
  w: {forward: net}
  product: {call: mul, inputs: [x, w]}
  cost: {call: mean, inputs: product}
  step: {update: net, loss: cost, accumulate: {steps: 2, on_epoch_end: flush}}
"""
BATCHES = [[1.0], [2.0], [4.0, 4.0, 4.0], [8.0], [16.0], [32.0], [64.0]]
"""The slope of a batch is its mean."""


def walk(step: Step, batches: list[list[float]]) -> list[float]:
    """Return the weight after a step on each batch."""
    found: list[float] = []
    for batch in batches:
        step({"x": np.array(batch)})
        found.append(float(weights(step)["net.value"]))
    return found


def moves(step: Step, batches: list[list[float]] = BATCHES) -> list[float]:
    """Return by how much each step moves the weight, down."""
    return list(-np.diff([0.0, *walk(step, batches)]))


def test_the_last_step_of_an_epoch_applies_what_there_is(backend: str) -> None:
    assert np.allclose(moves(build_paced(SPEC, backend, epoch=3)), [0, 1.5, 4, 0, 12, 32, 0])


def test_every_sample_of_a_cut_window_counts_alike(backend: str) -> None:
    step = build_paced(SPEC, backend, ("ops.step.accumulate.steps=4",), epoch=3)
    assert np.allclose(moves(step), [0, 0, (1 + 2 + 12) / 5, 0, 0, (8 + 16 + 32) / 3, 0])


def test_what_is_dropped_is_in_no_update(backend: str) -> None:
    step = build_paced(SPEC, backend, ("ops.step.accumulate.on_epoch_end=drop",), epoch=3)
    assert np.allclose(moves(step), [0, 1.5, 0, 0, 12, 0, 0])


def test_a_window_that_an_epoch_fills_is_applied_once(backend: str) -> None:
    for word in ("flush", "drop"):
        step = build_paced(SPEC, backend, (f"ops.step.accumulate.on_epoch_end={word}",), epoch=4)
        assert np.allclose(moves(step), [0, 1.5, 0, 5, 0, 24, 0])


def test_carried_on_it_goes_over_the_end(backend: str) -> None:
    step = build_paced(SPEC, backend, ("ops.step.accumulate.on_epoch_end=carry",), epoch=3)
    assert np.allclose(moves(step), [0, 1.5, 0, 5, 0, 24, 0])


@pytest.mark.parametrize(("reduce", "expected"), [("sum", 56), ("steps", 56 / 3)])
def test_sums_and_steps_are_reduced_as_they_are(backend: str, reduce: str, expected: float) -> None:
    step = build_paced(SPEC, backend, ("ops.step.accumulate.steps=4", f"ops.step.accumulate.reduce={reduce}"), epoch=3)
    assert np.isclose(moves(step)[5], expected)


def test_the_last_step_may_be_one_that_gathers_nothing(backend: str) -> None:
    step = build_paced(SPEC, backend, ("ops.step.every=2",), epoch=3)
    assert np.allclose(moves(step), [0, 0, 2, 0, 0, (8 + 32) / 2, 0])


def test_gradients_that_are_absent_leave_parameters_alone_then(backend: str) -> None:
    step = build_paced(SPEC, backend, ("ops.step.every=2", "ops.step.missing=skip"), epoch=3)
    assert np.allclose(moves(step), [0, 0, 2, 0, 0, (8 + 32) / 2, 0])


def test_reports_tell_of_the_update(backend: str) -> None:
    step = build_paced(SPEC, backend, epoch=3)
    fired = []
    for batch in BATCHES:
        step({"x": np.array(batch)})
        fired.append(step.report.updates["step"].fired)
    assert fired == [False, True, True, False, True, True, False]
    assert step.report.updates["step"].iterations == {"net": 4}


@pytest.mark.parametrize(("word", "window"), [("flush", 4), ("drop", 2)])
def test_a_run_goes_on_in_the_middle_of_a_window(backend: str, word: str, window: int) -> None:
    settings = (f"ops.step.accumulate={{steps: {window}, on_epoch_end: {word}}}",)
    assert_goes_on(lambda: build_paced(SPEC, backend, settings, epoch=3), walk, BATCHES, cuts=(1, 3, 4))


def test_an_end_that_nobody_can_count_is_refused(backend: str) -> None:
    with pytest.raises(SpecError, match=r"E-PACE\]: 'step' applies what it has gathered at the end of an epoch"):
        build_step(SPEC, backend)


METRIC = """
graphspec: 1
name: measure
inputs: {x: {shape: [batch]}}
ops:
  seen: {metric: mean, inputs: x, reset: 2 epochs}
"""


def test_a_metric_runs_for_several_epochs(backend: str) -> None:
    step = build_paced(METRIC, backend, epoch=2)
    values = [float(step({"x": np.array([float(number)])})["seen"]) for number in range(1, 7)]
    assert np.allclose(values, [1, 1.5, 2, 2.5, 5, 5.5])


def test_samples_are_rounded_up_to_whole_steps(backend: str) -> None:
    step = build_paced(METRIC, backend, ("ops.seen.reset=3 samples",), batch=2)
    values = [float(step({"x": np.array([float(number)])})["seen"]) for number in range(1, 5)]
    assert np.allclose(values, [1, 1.5, 3, 3.5])


def test_elsewhere_it_runs_for_a_pass_over_the_data(backend: str) -> None:
    step = build_paced(METRIC, backend, epoch=1)
    run = [float(step({"x": np.array([float(number)])}, mode="eval")["seen"]) for number in range(1, 6)]
    step.end_epoch("eval")
    assert np.allclose(run, [1, 1.5, 2, 2.5, 3])
    assert float(step({"x": np.array([7.0])}, mode="eval")["seen"]) == 7


def test_epochs_that_nobody_can_count_are_refused(backend: str) -> None:
    with pytest.raises(SpecError, match=r"E-PACE\]: `reset: 2 epochs` of 'seen' cannot be counted"):
        build_step(METRIC, backend)
