"""An update from a loss equals a gradient, transforms and an update from gradients, written out."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.steps import build_step, set_weights, weights

pytestmark = pytest.mark.row("D1")

SHORT = """
graphspec: 1
name: minimise
models:
  v0: {parameter: {shape: [2]}, optimizer: {name: sgd, lr: 3.0}}
  v1: {parameter: {shape: [2]}, optimizer: {name: sgd, lr: 3.0}}
ops:
  a: {forward: v0}
  b: {forward: v1}
  five: {call: mul, inputs: [a, 5.0]}
  three: {call: mul, inputs: [b, 3.0]}
  both: {call: add, inputs: [five, three]}
  cost: {call: sum, inputs: both}
  step: {update: [v0, v1], loss: cost}
outputs: [cost]
"""
LONG = SHORT.replace(
    "step: {update: [v0, v1], loss: cost}",
    "slopes: {gradient: cost, wrt: [v0, v1]}\n  step: {update: [v0, v1], gradients: slopes}",
)


@pytest.mark.parametrize("text", [SHORT, LONG])
def test_tensorflows_own_numbers(text: str, backend: str) -> None:
    step = build_step(text, backend)
    set_weights(step, {"v0.value": [1, 2], "v1.value": [3, 4]})
    step({})
    assert np.allclose(weights(step)["v0.value"], [-14, -13])
    assert np.allclose(weights(step)["v1.value"], [-6, -5])
