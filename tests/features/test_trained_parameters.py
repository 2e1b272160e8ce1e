"""The updates determine what is trained; results of inner layers are values too."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.steps import build_step, weights

pytestmark = pytest.mark.row("A13")

SPEC = """
graphspec: 1
name: inner
inputs: {x: {shape: [batch, 3]}}
models:
  body: {layers: [{linear: 4}, tanh, {linear: 3}]}
  head: {layers: [{linear: 1}], optimizer: {name: sgd, lr: 0.1}}
ops:
  top: {forward: body, inputs: x, outputs: [y, {hidden: {tap: "1"}}]}
  score: {forward: head, inputs: hidden}
  cost: {loss: mse, inputs: [score, 1.0]}
  step: {update: head, loss: cost}
outputs: [hidden]
"""


def test_the_result_of_an_inner_layer_is_what_that_layer_gives(backend: str) -> None:
    step = build_step(SPEC, backend)
    x = np.array([[1.0, -2.0, 0.5]])
    held = weights(step)
    found = step.numpy(step({"x": x})["hidden"])
    assert np.allclose(found, np.tanh(x @ held["body.0.weight"].T + held["body.0.bias"]))


def test_a_model_without_an_update_does_not_move(backend: str) -> None:
    step = build_step(SPEC, backend)
    before = weights(step)
    step({"x": np.ones((2, 3))})
    moved = {name for name, value in weights(step).items() if not np.array_equal(value, before[name])}
    assert moved == {"head.0.weight", "head.0.bias"}
