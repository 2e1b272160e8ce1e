"""The compiler scales losses and unscales gradients: what a spec can see is never scaled."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.overflows import SPEC, give, made
from tests.features.steps import weights

pytestmark = pytest.mark.row("B3")

SEEN = SPEC.replace(
    "precision:",
    "  slopes: {gradient: cost, wrt: [value]}\n"
    "  squares: {call: square, inputs: slopes}\n"
    "  penalty: {call: sum, inputs: squares}\n"
    "precision:",
).replace("outputs: [cost]", "outputs: [cost, slopes, penalty]")
SCALES = ["none", "128", "0.125", "{initial: 65536}"]


@pytest.mark.parametrize("scale", SCALES)
def test_losses_gradients_and_weights_are_those_without_a_scale(scale: str, backend: str) -> None:
    step = made(backend, [f"precision.loss_scale={scale}"], text=SEEN)
    outputs = step({"slope": np.array([3.0, -4.0], np.float32)})
    assert step.numpy(outputs["slopes"]).tolist() == [3.0, -4.0]
    assert float(step.numpy(outputs["penalty"])) == 25.0
    assert weights(step)["v.value"].tolist() == [-3.0, 4.0]


@pytest.mark.parametrize("scale", SCALES)
def test_a_gradient_that_is_differentiated_again_is_not_scaled_twice(scale: str, backend: str) -> None:
    text = SEEN.replace("{call: mul, inputs: [value, slope]}", "{call: mul, inputs: [cube, slope]}").replace(
        "  product:", "  cube: {call: square, inputs: value}\n  product:"
    )
    text = text.replace("{update: v, loss: cost}", "{update: v, loss: penalty}").replace("init: 0.0", "init: 1.0")
    step = made(backend, [f"precision.loss_scale={scale}"], text=text)
    give(step, [1.0, 2.0])
    assert weights(step)["v.value"].tolist() == [1.0 - 8.0, 1.0 - 32.0]  # of the sum of (2 a v)^2: 8 a^2 v


@pytest.mark.parametrize("scale", SCALES)
def test_given_cotangents_are_scaled_like_a_loss(scale: str, backend: str) -> None:
    text = SPEC.replace(
        "{update: v, loss: cost}",
        "{update: v, gradients: given}\n  given: {gradient: product, wrt: v, grad_outputs: w}",
    ).replace("inputs: {slope", "inputs: {w: {shape: [2]}, slope")
    step = made(backend, [f"precision.loss_scale={scale}"], text=text)
    step({"slope": np.array([3.0, 5.0], np.float32), "w": np.array([2.0, -1.0], np.float32)})
    assert weights(step)["v.value"].tolist() == [-6.0, 5.0]


def test_evaluation_differentiates_losses_as_they_are(backend: str) -> None:
    step = made(backend, ["precision.loss_scale=1e30"], text=SEEN)
    outputs = step({"slope": np.array([1e20, 1.0], np.float32)}, mode="eval")
    assert step.numpy(outputs["slopes"]).tolist() == [np.float32(1e20), 1.0]
