"""`where` of two numbers has the type of the step, so that 0.1 is as close to a tenth as that type has it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.steps import build_step, set_weights, weights

SPEC = """
graphspec: 1
name: chosen
inputs: {x: {shape: [batch, 2]}}
models: {net: {layers: [{linear: {out: 2, bias: false}}], optimizer: {name: sgd, lr: 1.0}}}
ops:
  out: {forward: net, inputs: x}
  weight: {call: where, inputs: [mask, 0.1, 1]}
  mask: {call: greater, inputs: [x, 0]}
  whole: {call: where, inputs: [mask, 2, 3]}
  cost: {expr: "sum(out * weight) + 0.0 * mean(out * where(x > 1, 0.3, 0.7))"}
  step: {update: net, loss: cost}
outputs: [weight, whole, cost]
"""
X = np.array([[0.5, -2.0], [3.0, 1.0]])
WEIGHT = np.array([[0.1, 1.0], [0.1, 0.1]])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("more", ["", "micro_batches: 2\n"])
def test_two_numbers_are_of_the_type_of_the_step(backend, dtype, more):
    step = build_step(SPEC + more, backend, dtype=dtype)
    set_weights(step, {"net.0.weight": np.zeros((2, 2))})
    found = {name: step.numpy(value) for name, value in step({"x": X.astype(dtype)}).items()}
    assert found["weight"].dtype == np.dtype(dtype)
    assert np.array_equal(found["weight"], WEIGHT.astype(dtype))
    assert found["whole"].tolist() == [[2, 3], [2, 2]]
    assert np.issubdtype(found["whole"].dtype, np.integer)
    # The gradient of sum(W x * weight) is weight^T x: with a tenth of float32 it would be off by 1e-9.
    np.testing.assert_allclose(weights(step)["net.0.weight"], -WEIGHT.T @ X, rtol=1e-6 if dtype == "float32" else 1e-15)
