"""Micro-batches know where the rows of a value lie once a call has moved them, and tell of calls that mix them."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import load
from tests.features.steps import build_step, set_weights, weights

SPEC = """
graphspec: 1
name: turned
inputs: {x: {shape: [batch, 4]}}
models:
  net: {layers: [{linear: {out: 3, bias: false}}], optimizer: {name: sgd, lr: 0.5}}
ops:
  seen: {forward: net, inputs: x}
  turned: {call: permute, inputs: seen, args: {dims: [1, 0]}}
  squared: {call: square, inputs: turned}
  fit: {loss: mse, inputs: [squared, 1.0]}
  step: {update: net, loss: fit}
outputs: [turned, squared, fit]
"""
WEIGHT = np.linspace(-1, 1, 12).reshape(3, 4)
X = np.random.default_rng(3).normal(size=(5, 4))


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_rows_that_lie_along_another_axis_are_joined_along_it(backend: str, parts: int) -> None:
    step = build_step(SPEC, backend, [f"micro_batches={parts}"])
    set_weights(step, {"net.0.weight": WEIGHT})
    found = {name: np.asarray(value) for name, value in step({"x": X}).items()}
    turned = WEIGHT @ X.T
    assert np.allclose(found["turned"], turned)
    assert np.allclose(found["squared"], turned**2)
    assert np.isclose(found["fit"], np.mean((turned**2 - 1) ** 2))
    slope = 4 * (turned**2 - 1) * turned / turned.size
    assert np.allclose(weights(step)["net.0.weight"], WEIGHT - 0.5 * slope @ X)


@pytest.mark.parametrize(
    ("call", "is_mixing"),
    [
        ("{call: softmax, inputs: turned, args: {axis: 1}}", True),
        ("{call: softmax, inputs: turned, args: {axis: 0}}", False),
        ("{call: matmul, inputs: [turned, seen]}", True),
        ("{call: matmul, inputs: [seen, turned]}", True),
        ("{call: matmul, inputs: [seen, [[1]]]}".replace("[[1]]", "table"), False),
        ("{call: reshape, inputs: seen, args: {shape: [3, -1]}}", True),
        ("{call: reshape, inputs: seen, args: {shape: [-1]}}", False),
        ("{call: reshape, inputs: turned, args: {shape: [-1, 3]}}", True),
    ],
)
def test_what_mixes_rows_is_told(call: str, is_mixing: bool) -> None:
    text = SPEC.replace("{call: square, inputs: turned}", call).replace(
        "inputs:", "state: {table: {shape: [3, 3]}}\ninputs:", 1
    )
    found = compile_step(load(text, ["micro_batches=2"])).warnings
    told = [each.message for each in found if each.code == "W-COUPLED" and each.message.startswith("'squared'")]
    assert len(told) == is_mixing
