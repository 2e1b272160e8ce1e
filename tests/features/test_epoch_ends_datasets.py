"""`on_epoch_end` of an update that runs on some data sets alone: an epoch may end with a batch of another."""

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
inputs: {x: {shape: [batch]}, z: {shape: [batch]}}
models:
  net: {parameter: {shape: [], init: 0.0}, optimizer: {name: sgd, lr: 1.0}}
  other: {parameter: {shape: [], init: 0.0}, optimizer: {name: sgd, lr: 1.0}}
  slow: {like: net}
ops:
  w: {forward: net}
  product: {call: mul, inputs: [x, w], dataset: a}
  cost: {call: mean, inputs: product}
  step: {update: net, loss: cost, accumulate: {steps: 4, on_epoch_end: flush}}
  v: {forward: other}
  far: {call: mul, inputs: [z, v], dataset: b}
  loss: {call: mean, inputs: far}
  step_other: {update: other, loss: loss}
  average: {ema: net, into: slow, decay: 0.5}
"""
"""The slope of a batch of either is its mean: one input is of `a`, and one of `b`."""
DROP = "ops.step.accumulate.on_epoch_end=drop"
JUDGED = ("ops.step.on_overflow=own",)
BAD = np.inf
EPOCHS = "a1 a2 b4 b8 a16 b32 b64 b64 b64 a1 b2 a3"
"""Batches by data set and slope, in epochs of three."""


def walk(step: Step, batches: str, name: str = "net") -> list[float]:
    """Return the weight of a model after a step on each batch."""
    found: list[float] = []
    for dataset, *slope in batches.split():
        batch = {"x" if dataset == "a" else "z": np.array([float("".join(slope))])}
        step(batch, dataset=dataset)
        found.append(float(weights(step)[f"{name}.value"]))
    return found


def moves(backend: str, batches: str, *settings: str, name: str = "net") -> list[float]:
    """Return by how much each step moves a weight, down."""
    step = build_paced(SPEC, backend, settings, epoch=3)
    return list(-np.diff([0.0, *walk(step, batches, name)]))


def test_the_last_step_of_an_epoch_applies_what_there_is_whatever_its_batch(backend: str) -> None:
    assert np.allclose(moves(backend, EPOCHS), [0, 0, 1.5, 0, 0, 16, 0, 0, 0, 0, 0, 2])


def test_the_other_update_runs_in_that_step_too(backend: str) -> None:
    assert np.allclose(moves(backend, EPOCHS, name="other"), [0, 0, 4, 8, 0, 32, 64, 64, 64, 0, 2, 0])


def test_what_is_dropped_is_in_no_update(backend: str) -> None:
    settings = DROP, "ops.step.accumulate.steps=2"
    assert np.allclose(moves(backend, "a1 b2 b4 a8 a16 b32", *settings), [0, 0, 0, 0, 12, 0])


def test_carried_on_it_waits_for_batches_of_its_own(backend: str) -> None:
    settings = "ops.step.accumulate.on_epoch_end=carry", "ops.step.accumulate.steps=2"
    assert np.allclose(moves(backend, "a1 b2 b4 a8 a16 b32", *settings), [0, 0, 0, 4.5, 0, 0])


def test_what_was_committed_is_applied(backend: str) -> None:
    batches = "a1 ainf b4 ainf b8 b16"
    assert np.allclose(moves(backend, batches, *JUDGED), [0, 0, 1, 0, 0, 0])
    whole = "ops.step.accumulate.on_nonfinite=window"
    assert np.allclose(moves(backend, f"{batches} b1 a2 b3", *JUDGED, whole), [0, 0, 0, 0, 0, 0, 0, 0, 2])


def test_what_follows_the_update_follows_it_there(backend: str) -> None:
    step = build_paced(SPEC, backend, epoch=3)
    assert np.allclose(walk(step, "a1 a2 b4 b8 a16 b32", "slow"), [0, 0, -0.75, -0.75, -0.75, -9.125])


def test_reports_tell_of_the_update(backend: str) -> None:
    step = build_paced(SPEC, backend, epoch=3)
    fired = []
    for each in EPOCHS.split()[:6]:
        walk(step, each)
        fired.append(step.report.updates["step"].fired)
    assert fired == [False, False, True, False, False, True]


@pytest.mark.sample(3)
@pytest.mark.parametrize("settings", [(), (DROP, "ops.step.accumulate.steps=2"), JUDGED])
def test_a_run_goes_on_in_the_middle_of_a_window(backend: str, settings: tuple[str, ...]) -> None:
    batches = ["a1", "a2", "b4", "b8", "a16", "b32"]
    assert_goes_on(
        lambda: build_paced(SPEC, backend, settings, epoch=3),
        lambda step, each: walk(step, " ".join(each)),
        batches,
        cuts=(1, 2, 5),
    )
