"""Gradients are taken at the weights that the spec means, regardless of writes in the meantime."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.steps import build_step, set_weights, weights

pytestmark = pytest.mark.row("D2")

PRODUCT = """
graphspec: 1
name: product
models:
  a: {parameter: {shape: []}, optimizer: {name: sgd, lr: 0.1}}
  b: {parameter: {shape: []}, optimizer: {name: sgd, lr: 0.1}}
ops:
  left: {forward: a}
  right: {forward: b}
  cost: {call: mul, inputs: [left, right]}
  step_a: {update: a, loss: cost}
"""
TOGETHER = "  step_b: {update: b, loss: cost}\n"
AGAIN = """  left_again: {forward: a, after: step_a}
  cost_again: {call: mul, inputs: [left_again, right]}
  step_b: {update: b, loss: cost_again}
"""


@pytest.mark.parametrize(("ops", "expected"), [(TOGETHER, (1.7, 2.8)), (AGAIN, (1.7, 2.83))], ids=["together", "again"])
def test_simultaneous_is_the_default_and_sequential_is_said(
    ops: str, expected: tuple[float, float], backend: str
) -> None:
    step = build_step(PRODUCT + ops, backend)
    set_weights(step, {"a.value": 2.0, "b.value": 3.0})
    step({})
    found = weights(step)
    assert np.allclose([found["a.value"], found["b.value"]], expected)
