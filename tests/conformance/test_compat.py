"""Under `compat` a spec without options does what Keras and PyTorch do without them."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import torch

from tests.conformance.scenario import BACKENDS
from tests.features.steps import build_step, set_weights, weights

KINDS = ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "Nadam", "Lion")
RULE = """
graphspec: 1
name: rule
compat: tf_keras
inputs: {y: {shape: [3]}}
models: {v: {parameter: {shape: [3]}, optimizer: RULE}}
ops:
  w: {forward: v}
  loss: {loss: mse, inputs: [w, y], reduction: sum}
  step: {update: v, loss: loss}
"""
START = np.array([1.0, -2.0, 0.5])
TARGETS = np.random.default_rng(5).normal(size=(10, 3)) * 5
RATES = [0.1] * 4 + [0.02] * 6
FALLING = "lr: {schedule: piecewise, at: {0: 0.1, 4: 0.02}}"
MOMENTA = {
    f"{{name: sgd, momentum: 0.9, {FALLING}}}": {"momentum": 0.9},
    f"{{name: sgd, momentum: 0.9, nesterov: true, {FALLING}}}": {"momentum": 0.9, "nesterov": True},
}


def step_keras(rule: Any, rates: list[float] | None = None) -> np.ndarray:
    """Return the weights after ten steps of a rule of Keras."""
    variable = tf.Variable(START)
    for index, target in enumerate(TARGETS):
        if rates is not None:
            rule.learning_rate = rates[index]
        rule.apply([2 * (variable - tf.constant(target))], [variable])
    return variable.numpy()


def step_ours(rule: str, backend: str, compat: str = "tf_keras") -> np.ndarray:
    """Return the weights after ten steps of the spec."""
    step = build_step(RULE, backend, (f"models.v.optimizer={rule}", f"compat={compat}"))
    set_weights(step, {"v.value": START})
    for target in TARGETS:
        step({"y": target})
    return weights(step)["v.value"]


CASES = [
    *((f"{{name: {kind.lower()}}}", getattr(keras.optimizers, kind), {}, None) for kind in KINDS),
    *((rule, keras.optimizers.SGD, options, RATES) for rule, options in MOMENTA.items()),
]
"""Rules as a spec says them; the class of Keras with its options, and the rates that it is given."""


@pytest.mark.sample(3)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("rule", "kind", "options", "rates"), CASES, ids=[case[0][7:40] for case in CASES])
def test_ten_steps_are_those_of_keras(rule: str, kind: Any, options: dict, rates: Any, backend: str) -> None:
    expected = step_keras(kind(**options), rates)
    # Rates of Keras are float32; adam, adamw, adamax, rmsprop and adagrad add their eps at another place.
    np.testing.assert_allclose(step_ours(rule, backend) - START, expected - START, rtol=1e-5)
    if rule != "{name: adam}":  # of which only eps differs, too little to be seen here
        assert not np.allclose(step_ours(rule, backend, "torch") - START, expected - START, rtol=1e-4)


LAYERS = """
graphspec: 1
name: layers
compat: tf_keras
inputs: {x: {shape: [batch, 3]}}
models: {net: {layers: LIST, optimizer: sgd}}
ops:
  y: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [y, 0.0]}
  step: {update: net, loss: loss}
outputs: y
"""
X = TARGETS * 0.01


@pytest.mark.parametrize("backend", BACKENDS)
def test_layers_are_those_of_keras(backend: str) -> None:
    step = build_step(LAYERS.replace("LIST", "[layer_norm, leaky_relu]"), backend)
    normalized = keras.layers.LayerNormalization(dtype="float64")(X)
    expected = keras.layers.LeakyReLU(dtype="float64")(normalized)
    np.testing.assert_allclose(np.asarray(step({"x": X}, mode="eval")["y"]), expected, rtol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS)
def test_running_means_of_batch_norm_are_those_of_keras(backend: str) -> None:
    step = build_step(LAYERS.replace("LIST", "[batch_norm]"), backend)
    layer = keras.layers.BatchNormalization(dtype="float64")
    for _ in range(3):
        step({"x": X})
        layer(X, training=True)
    np.testing.assert_allclose(weights(step)["net.0.running_mean"], layer.moving_mean, rtol=1e-6)
    layer.moving_variance.assign(weights(step)["net.0.running_var"])
    for name, variable in (("weight", layer.gamma), ("bias", layer.beta)):
        variable.assign(weights(step)[f"net.0.{name}"])
    expected = layer(X, training=False)
    np.testing.assert_allclose(np.asarray(step({"x": X}, mode="eval")["y"]), expected, rtol=1e-6)


CLIPS = {
    "clip": "step: {update: v, loss: loss, clip: {norm: 1.0e-6}}",
    "clip_norm": "set: {gradient: loss, wrt: v}\n  short: {transform: clip_norm, inputs: set, args: {norm: 1.0e-6}}\n"
    "  step: {update: v, gradients: short}",
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("clip", CLIPS)
def test_clips_are_those_of_pytorch(clip: str, backend: str) -> None:
    text = RULE.replace("step: {update: v, loss: loss}", CLIPS[clip])
    step = build_step(text, backend, ("models.v.optimizer={name: sgd, lr: 1}", "compat=torch"))
    set_weights(step, {"v.value": [1e-6, 0.0, 0.0]})
    step({"y": np.zeros(3)})
    v = torch.tensor([1e-6, 0.0, 0.0], dtype=torch.float64)
    v.grad = 2 * v
    torch.nn.utils.clip_grad_norm_([v], 1e-6)
    np.testing.assert_allclose(weights(step)["v.value"], v - v.grad, rtol=1e-9)
    assert v.grad[0] < 0.7e-6  # a third of it; without eps a half
