"""Of a spec with a class of the user's, the build observes the parts of expressions, each with its type."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from compiler import compile_step
from graphspec import load
from runtime import build

SPEC = """
graphspec: 1
name: observed
inputs: {x: {shape: [batch, 3]}, label: {shape: [batch], dtype: int64}}
models: {net: {class: "nets:Net", optimizer: {name: sgd, lr: 0.1}}}
ops:
  scores: {forward: net, inputs: x}
  hard: {loss: cross_entropy, inputs: [scores, label]}
  soft: {loss: mse, inputs: [scores, 1.0]}
  total: {expr: "0.25 * hard + 4 * soft"}
  step: {update: net, loss: "2 * total + mean(scores) ** 2"}
outputs: [total, step.loss]
"""


def make_zeros(backend: str) -> object:
    """Return a layer whose scores are all 0."""
    if backend == "torch":
        from torch import nn

        net = nn.Linear(3, 2)
        nn.init.zeros_(net.weight)
        nn.init.zeros_(net.bias)
        return net
    import keras

    return keras.Sequential([keras.layers.Dense(2, kernel_initializer="zeros")])


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_a_step_of_a_class_and_an_expression_is_built(backend: str) -> None:
    step = build(compile_step(load(SPEC), backend), device="cpu", models={"net": make_zeros(backend)})
    outputs = step({"x": np.ones((4, 3), np.float32), "label": np.array([0, 1, 1, 0])})
    total = 0.25 * log(2) + 4  # two equal scores; the square of 0 - 1
    assert float(outputs["total"]) == pytest.approx(total, rel=1e-6)
    assert float(outputs["step.loss"]) == pytest.approx(2 * total, rel=1e-6)
