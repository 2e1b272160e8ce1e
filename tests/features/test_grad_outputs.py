"""`grad_outputs` is the factor of the derivative if the differentiated value is not a scalar."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.steps import build_step, set_weights, weights

pytestmark = pytest.mark.row("D4")

SPEC = """
graphspec: 1
name: weighted
inputs: {seed: {shape: [2]}}
models:
  v0: {parameter: {shape: [2]}, optimizer: {name: sgd, lr: 3.0}}
  v1: {parameter: {shape: [2]}, optimizer: {name: sgd, lr: 3.0}}
ops:
  a: {forward: v0}
  b: {forward: v1}
  five: {call: mul, inputs: [a, 5.0]}
  three: {call: mul, inputs: [b, 3.0]}
  cost: {call: add, inputs: [five, three]}
  slopes: {gradient: cost, wrt: [v0, v1], grad_outputs: seed}
  step: {update: [v0, v1], gradients: slopes}
outputs: [cost]
"""


def test_tensorflows_own_numbers(backend: str) -> None:
    step = build_step(SPEC, backend)
    set_weights(step, {"v0.value": [1, 2], "v1.value": [3, 4]})
    step({"seed": np.array([42.0, -42.0])})
    assert np.allclose(weights(step)["v0.value"], [-629, 632])
    assert np.allclose(weights(step)["v1.value"], [-375, 382])
