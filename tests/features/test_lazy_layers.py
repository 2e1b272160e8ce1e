"""Layers that infer their sizes from the first call have them, and their slots, before the first step."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.steps import build_step, weights

pytestmark = pytest.mark.row("C11")

SPEC = """
graphspec: 1
name: late
inputs: {x: {shape: [batch, 3]}, y: {shape: [batch, 2]}}
models:
  net:
    class: {torch: "tests.features.lazies:Torch", tensorflow: "tests.features.lazies:make_keras"}
    optimizer: {name: adam, lr: 0.1}
ops:
  out: {forward: net, inputs: x}
  cost: {loss: mse, inputs: [out, y]}
  step: {update: net, loss: cost}
"""
BATCH = {"x": np.ones((2, 3), np.float32), "y": np.full((2, 2), 5, np.float32)}


def test_sizes_are_found_by_build(backend: str) -> None:
    step = build_step(SPEC, backend, dtype="float32")
    assert step.sizes == {"net": 3 * 4 + 4 + 4 * 2 + 2}
    assert sorted(array.size for array in weights(step).values()) == [2, 4, 8, 12]


def test_what_was_found_late_is_trained_from_the_first_step_on(backend: str) -> None:
    step = build_step(SPEC, backend, dtype="float32")
    before = weights(step)
    first = step.numpy(step(BATCH)["cost"])
    assert all(not np.array_equal(after, before[name]) for name, after in weights(step).items())
    costs = [step.numpy(step(BATCH)["cost"]) for _ in range(20)]
    assert costs[-1] < first / 2
