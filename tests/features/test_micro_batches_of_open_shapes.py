"""An input without a declared shape is split into micro-batches along its first axis."""

from __future__ import annotations

import numpy as np

from tests.features.steps import build_step, set_weights, weights

SPEC = """
graphspec: 1
name: open
inputs: {x: {shape: [batch, 3]}, y: {}}
models: {net: {layers: [{linear: {out: 2, bias: false}}], optimizer: {name: sgd, lr: 0.1}}}
ops:
  seen: {forward: net, inputs: x}
  error: {loss: mse, inputs: [seen, y]}
  step: {update: net, loss: error}
outputs: [error]
"""


def test_an_input_without_a_shape_is_split_too(backend: str) -> None:
    random = np.random.default_rng(0)
    x, y, weight = (random.normal(size=size) for size in ((5, 3), (5, 2), (2, 3)))
    step = build_step(SPEC, backend, ["micro_batches=2"])
    set_weights(step, {"net.0.weight": weight})
    error = x @ weight.T - y
    assert np.isclose(np.asarray(step({"x": x, "y": y})["error"]), (error**2).mean())
    assert np.allclose(weights(step)["net.0.weight"], weight - 0.1 * 2 * error.T @ x / error.size, rtol=1e-12)
