"""A learning rate follows a schedule that counts its optimizer's updates, steps, samples or epochs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.features.steps import build_step, set_weights, weights

SPEC = """
graphspec: 1
name: fall
inputs: {{x: {{shape: [batch]}}}}
data: {{train: {{source: npz, path: none.npz, batch: 2}}}}
models:
  m: {{parameter: {{shape: []}}, optimizer: {{name: sgd, lr: {rate}}}}}
ops:
  value: {{forward: m}}
  cost: {{call: mul, inputs: [value, 1.0]}}
  step: {{update: m, loss: cost{every}}}
outputs: cost
"""
COSINE = [0.5 * (1 + math.cos(math.pi * n / 4)) for n in range(4)]
"""SGDR (Loshchilov and Hutter 2017): from 1 to 0 over 4."""


def fall(backend: str, rate: str, every: str = "", steps: int = 6) -> list[float]:
    """Return how far each step moves a weight whose slope is 1: the learning rate of the step."""
    step = build_step(SPEC.format(rate=rate, every=every), backend)
    set_weights(step, {"m.value": 0.0})
    heights = [0.0]
    for _ in range(steps):
        step({"x": np.zeros(2)})
        heights.append(float(weights(step)["m.value"]))
    return list(-np.diff(heights))


def test_a_cosine_falls_from_update_to_update(backend: str) -> None:
    assert np.allclose(fall(backend, "{schedule: cosine, from: 1, over: 4}"), [*COSINE, 0, 0])


def test_a_step_without_an_update_holds_the_schedule(backend: str) -> None:
    found = fall(backend, "{schedule: cosine, from: 1, over: 4}", ", every: 2")
    assert np.allclose(found, [0, COSINE[0], 0, COSINE[1], 0, COSINE[2]])


def test_a_schedule_of_steps_goes_on_without_an_update(backend: str) -> None:
    found = fall(backend, "{schedule: cosine, from: 1, over: 4, clock: steps}", ", every: 2")
    assert np.allclose(found, [0, COSINE[1], 0, COSINE[3], 0, 0])


def test_a_schedule_of_samples_counts_those_of_earlier_batches(backend: str) -> None:
    found = fall(backend, "{schedule: step, from: 1, factor: 0.5, every: 4, clock: samples}")
    assert np.allclose(found, [1, 1, 0.5, 0.5, 0.25, 0.25])


@pytest.mark.parametrize("steps", [3])
def test_a_step_taken_back_takes_the_schedule_back(backend: str, steps: int) -> None:
    step = build_step(SPEC.format(rate="{schedule: linear, from: 1, over: 8}", every=""), backend)
    before = step.state()
    first = [step({"x": np.zeros(2)}) and float(weights(step)["m.value"]) for _ in range(steps)]
    step.restore(before)
    assert [step({"x": np.zeros(2)}) and float(weights(step)["m.value"]) for _ in range(steps)] == first


GROWING = """
graphspec: 1
name: grow
ops:
  smooth: {schedule: exponential, from: 0.5, rate: 2.0}
  stairs: {schedule: step, from: 0.5, factor: 2.0, every: 1}
outputs: [smooth, stairs]
"""


def test_a_schedule_that_leaves_float64_is_infinite(backend: str) -> None:
    step = build_step(GROWING, backend)
    for count, expected in ((1023, 2.0**1022), (1024, math.inf), (5000, math.inf)):
        state = step.state()
        step.restore(replace(state, counters={**state.counters, "steps": {"train": count, "eval": 0}}))
        assert [float(step.numpy(value)) for value in step({}, mode="eval").values()] == [expected] * 2
