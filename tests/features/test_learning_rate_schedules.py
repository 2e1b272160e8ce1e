"""A learning rate follows a schedule that counts its optimizer's updates, steps, samples or epochs."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.features.steps import build_step, set_weights, weights

pytestmark = pytest.mark.row("C9")

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


OWN = 1e-3
"""What torch.optim.SGD learns at unless it is told otherwise; keras.optimizers.SGD: 0.01."""
RISE = "{schedule: warmup, over: 2}"


def test_a_rate_that_is_left_out_is_the_optimizers_own(backend: str) -> None:
    assert np.allclose(fall(backend, RISE, steps=4), [0, OWN / 2, OWN, OWN], rtol=1e-9)
    assert np.allclose(fall(backend, "{schedule: cosine, over: 4}", steps=5), [*(OWN * each for each in COSINE), 0])
    halving = "{schedule: step, factor: 0.5, every: 1}"
    assert np.allclose(fall(backend, halving, steps=3), [OWN, OWN / 2, OWN / 4], rtol=1e-9)


def test_under_the_defaults_of_keras_it_is_that_of_keras(backend: str) -> None:
    step = build_step(SPEC.format(rate=RISE, every=""), backend, ["compat=tf_keras"])
    for rate in (0.0, 0.005, 0.01):
        step({"x": np.zeros(2)})
        assert step.report.updates["step"].learning_rates == pytest.approx({"m": rate})


@pytest.mark.parametrize(
    ("parts", "peak"),
    [
        (f"{RISE}, {{schedule: constant, for: 1}}, {{schedule: cosine, over: 4}}", OWN),
        ("{schedule: warmup, to: 0.5, over: 2}, {schedule: constant, for: 1}, {schedule: cosine, over: 4}", 0.5),
        (f"{RISE}, {{schedule: constant, for: 1}}, {{schedule: cosine, from: 0.5, over: 4}}", 0.5),
    ],
)
def test_the_parts_of_a_join_go_on_from_each_other(backend: str, parts: str, peak: float) -> None:
    found = fall(backend, f"{{schedule: join, parts: [{parts}]}}", steps=7)
    assert np.allclose(found, [peak * each for each in (0, 0.5, 1, *COSINE)], rtol=1e-9)


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
