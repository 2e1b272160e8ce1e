"""`on_epoch_end` where gradients that are not finite are skipped: what was committed is applied, or forgotten."""

from __future__ import annotations

import numpy as np
import pytest

from runtime import Step
from tests.features.cuts import assert_goes_on
from tests.features.paced import build_paced
from tests.features.steps import weights

SPEC = """
graphspec: 1
name: ends
precision: {loss_scale: 8}
inputs: {x: {shape: [batch]}}
models:
  net: {parameter: {shape: [], init: 0.0}, optimizer: {name: sgd, lr: 1.0}}
  slow: {like: net}
ops:
  w: {forward: net}
  product: {call: mul, inputs: [x, w]}
  cost: {call: mean, inputs: product}
  step: {update: net, loss: cost, accumulate: {steps: 4, on_epoch_end: flush}}
  average: {ema: net, into: slow, decay: 0.5}
"""
FLUSH = "ops.step.accumulate={steps: 4, on_epoch_end: flush}"
DROP = "ops.step.accumulate={steps: 2, on_epoch_end: drop}"
WHOLE = "ops.step.accumulate={steps: 4, on_epoch_end: flush, on_nonfinite: window}"
WHOLE_DROP = "ops.step.accumulate={steps: 2, on_epoch_end: drop, on_nonfinite: window}"
UNSCALED = ("precision.loss_scale=none", "ops.step.on_overflow=own")
BAD = np.inf


def walk(step: Step, slopes: list[float]) -> list[float]:
    """Return the weight after each of some steps; a slope is that of one row."""
    found: list[float] = []
    for slope in slopes:
        step({"x": np.array([float(slope)])})
        found.append(float(weights(step)["net.value"]))
    return found


def moves(backend: str, slopes: list[float], *settings: str) -> list[float]:
    """Return by how much each of some steps moves the weight, down, in epochs of three steps."""
    found = list(-np.diff([0.0, *walk(build_paced(SPEC, backend, settings, epoch=3), slopes)]))
    unscaled = walk(build_paced(SPEC, backend, (*settings, *UNSCALED), epoch=3), slopes)
    assert np.allclose(-np.diff([0.0, *unscaled]), found)
    return found


def test_what_was_committed_is_applied_and_no_more_counts(backend: str) -> None:
    assert np.allclose(moves(backend, [1, BAD, 4, 8, 16, 32], FLUSH), [0, 0, 2.5, 0, 0, 56 / 3])
    assert np.allclose(moves(backend, [1, 2, BAD, BAD, 16, BAD], FLUSH), [0, 0, 1.5, 0, 0, 16])


def test_what_is_dropped_is_in_no_update(backend: str) -> None:
    assert np.allclose(moves(backend, [1, BAD, 4, 8, 16, BAD, 32, 64], DROP), [0, 1, 0, 0, 12, 0, 0, 48])


def test_one_step_costs_a_whole_window_until_the_epoch_ends(backend: str) -> None:
    assert np.allclose(moves(backend, [BAD, 2, 4, 8, 16, 32], WHOLE), [0, 0, 0, 0, 0, 56 / 3])
    assert np.allclose(moves(backend, [BAD, 2, 4, 8, 16, 32], WHOLE_DROP), [0, 0, 0, 0, 12, 0])


def test_what_was_dropped_does_not_spoil_the_next_epoch(backend: str) -> None:
    assert np.allclose(moves(backend, [1, 2, BAD, 8, 16, 32], WHOLE_DROP), [0, 1.5, 0, 0, 12, 0])


def test_the_last_step_may_be_one_that_gathers_nothing(backend: str) -> None:
    gated = "ops.step.every=2"
    assert np.allclose(moves(backend, [1, 2, 4, 8, 16, 32], FLUSH, gated), [0, 0, 2, 0, 0, 20])
    assert np.allclose(moves(backend, [1, BAD, 4, 8, 16, 32], FLUSH, gated), [0, 0, 0, 0, 0, 20])
    assert np.allclose(moves(backend, [1, 2, 4, BAD, 16, 32], WHOLE, gated), [0, 0, 2, 0, 0, 0])


def test_a_window_with_nothing_in_it_is_skipped(backend: str) -> None:
    step = build_paced(SPEC, backend, epoch=3)
    walk(step, [BAD, BAD, BAD])
    told = step.report.updates["step"]
    assert told.skipped
    assert not told.fired
    assert told.iterations == {"net": 0}
    walk(step, [2, BAD, BAD])
    assert step.report.updates["step"].iterations == {"net": 1}
    assert float(weights(step)["slow.value"]) == -1  # half of the way, once


@pytest.mark.sample(3)
@pytest.mark.parametrize("settings", [(), (WHOLE,), (DROP,), ("ops.step.every=2",), ("ops.step.every=2", WHOLE)])
def test_a_run_goes_on_in_the_middle_of_a_window(backend: str, settings: tuple[str, ...]) -> None:
    slopes = [1, BAD, 4, 8, 16, 32, 64, 128, BAD]
    assert_goes_on(lambda: build_paced(SPEC, backend, settings, epoch=3), walk, slopes, cuts=(1, 2, 4, 5, 7, 8))
