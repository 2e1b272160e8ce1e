"""Losses, calls, transforms and metrics have the names of the field; mixing and weighting are built from them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.steps import build_step

pytestmark = pytest.mark.row("A19")

SUPER = """
graphspec: 1
name: super
inputs: {chances: {shape: [batch, 3]}, target: {shape: [batch, 3]}}
ops:
  logs: {call: log, inputs: chances}
  right: {call: mul, inputs: [target, logs]}
  summed: {call: sum, inputs: right, args: {axis: 1}}
  each: {call: neg, inputs: summed}
  cost: {loss: super_loss, inputs: each}
  slope: {gradient: cost, wrt: each}
outputs: [cost, slope]
"""
MIXED = """
graphspec: 1
name: mixed
inputs: {x: {shape: [batch, 1]}}
ops:
  drawn: {random: permutation, shape: [batch]}
  order: {call: reshape, inputs: drawn, args: {shape: [-1, 1]}}
  share: {random: uniform, shape: [batch, 1]}
  others: {call: gather, inputs: [x, order], args: {axis: 0}}
  mixed: {call: lerp, inputs: [x, others, share]}
outputs: [mixed, others, share]
"""
TARGET = np.array([[0.0, 1, 0], [1, 0, 0], [0, 0, 1]])
CHANCES = np.array([[0.1, 0.8, 0.1], [0.9, 0.05, 0.05], [0.1, 0.2, 0.7]])


def test_fastestimators_number_of_the_super_loss(backend: str) -> None:
    step = build_step(SUPER, backend)
    found = step.numpy(step({"chances": CHANCES, "target": TARGET})["cost"])
    assert np.isclose(found, -0.0026386082, atol=1e-9)


@pytest.mark.parametrize("threshold", [0.0, 0.5, 3.0])
def test_its_slope_is_the_confidence_that_makes_it_least(threshold: float, backend: str) -> None:
    step = build_step(SUPER, backend, (f"ops.cost.args={{threshold: {threshold}}}",))
    found = step({"chances": CHANCES, "target": TARGET})
    losses = -(TARGET * np.log(CHANCES)).sum(axis=1)
    tried = np.exp(np.linspace(-3, 1.0, 400_001))
    least = [tried[np.argmin((loss - threshold) * tried + np.log(tried) ** 2)] for loss in losses]
    assert np.allclose(3 * step.numpy(found["slope"]), least, atol=1e-4)


def test_samples_are_mixed_by_a_draw_a_permutation_and_lerp(backend: str) -> None:
    step = build_step(MIXED, backend)
    x = np.arange(4.0).reshape(4, 1)
    found = {name: step.numpy(value) for name, value in step({"x": x}).items()}
    assert sorted(map(tuple, found["others"])) == sorted(map(tuple, x))
    assert np.allclose(found["mixed"], x + found["share"] * (found["others"] - x))
