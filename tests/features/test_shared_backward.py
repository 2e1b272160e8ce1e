"""Terms are added up where the spec says so; losses that share a trunk share one backward pass."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import load
from tests.features.steps import build_step, weights

pytestmark = pytest.mark.row("D5")

SPEC = """
graphspec: 1
name: trunk
inputs: {x: {shape: [batch, 2]}, y: {shape: [batch, 1]}}
models:
  body: {layers: [{linear: {out: 2, bias: false}}], optimizer: {name: sgd, lr: 0.1}}
ops:
  seen: {forward: body, inputs: x}
  near: {loss: mse, inputs: [seen, 1.0]}
  small: {loss: mse, inputs: [seen, 0.0], weight: 0.5}
  cost: {call: add, inputs: [near, small]}
  step: {update: body, loss: cost}
"""


def test_the_gradient_is_that_of_the_sum(backend: str) -> None:
    step = build_step(SPEC, backend)
    w, x = weights(step)["body.0.weight"].copy(), np.array([[1.0, 2.0], [0.5, -1.0]])
    step({"x": x, "y": np.ones((2, 1))})
    seen = x @ w.T
    slope = (2 * (seen - 1.0) + 0.5 * 2 * seen).T @ x / seen.size
    assert np.allclose(weights(step)["body.0.weight"], w - 0.1 * slope)


def test_there_is_one_gradient(backend: str) -> None:
    (function,) = compile_step(load(SPEC), backend).program.mode("train").functions
    assert [type(each).__name__ for each in function.instructions].count("Gradient") == 1
