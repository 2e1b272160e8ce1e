"""`reduction: sum` with the gradient divided by the batch size is the mean; clips come after the division."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.steps import build_step, set_weights, weights

pytestmark = pytest.mark.row("C2")

SPEC = """
graphspec: 1
name: rescaled
inputs: {x: {shape: [batch, 1]}}
models: {net: {layers: [{linear: {out: 1, bias: false}}], optimizer: {name: sgd, lr: 0.3}}}
ops:
  y: {forward: net, inputs: x}
  total: {loss: wasserstein, inputs: y, reduction: sum}
  slope: {gradient: total, wrt: net}
  mean: {call: mul, inputs: [slope, 0.5]}
  step: {update: net, gradients: mean, clip: {value: 0.3}}
"""


def test_the_sum_is_divided_before_it_is_clipped(backend: str) -> None:
    step = build_step(SPEC, backend)
    set_weights(step, {"net.0.weight": [[0.0]]})
    step({"x": np.array([[2.0], [2.0]])})
    assert np.allclose(weights(step)["net.0.weight"], -0.09)


def test_without_the_clip_it_is_the_mean(backend: str) -> None:
    step = build_step(SPEC, backend, ("ops.step.clip=null",))
    set_weights(step, {"net.0.weight": [[0.0]]})
    step({"x": np.array([[2.0], [2.0]])})
    assert np.allclose(weights(step)["net.0.weight"], -0.6)


def test_the_number_may_follow_any_schedule(backend: str) -> None:
    settings = (
        "ops.step.clip=null",
        "ops.mean.inputs=[slope, {schedule: piecewise, at: {0: 0.5, 1: 0.25}}]",
    )
    step = build_step(SPEC, backend, settings)
    set_weights(step, {"net.0.weight": [[0.0]]})
    for expected in (-0.6, -0.9):
        step({"x": np.array([[2.0], [2.0]])})
        assert np.allclose(weights(step)["net.0.weight"], expected)
