"""An update steps all unfrozen parameters of the models it names; frozen parameters are not targets at all."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.steps import build_step, set_weights, weights

pytestmark = pytest.mark.row("D3")

PAIR = """
graphspec: 1
name: gating
models:
  a: {parameter: {shape: []}, optimizer: {name: sgd, lr: 0.1}}
  b: {parameter: {shape: []}, optimizer: {name: sgd, lr: 0.1}}
ops:
  left: {forward: a}
  right: {forward: b}
  product: {call: mul, inputs: [left, right]}
  step: {update: TARGETS, loss: product}
"""


def test_only_the_variables_of_the_list_are_stepped(backend: str) -> None:
    step = build_step(PAIR.replace("TARGETS", "a"), backend)
    set_weights(step, {"a.value": 2, "b.value": 3})
    step({})
    assert np.allclose([weights(step)["a.value"], weights(step)["b.value"]], [1.7, 3.0])


FROZEN = """
graphspec: 1
name: frozen
inputs: {x: {shape: [batch, 2]}}
models:
  net:
    layers: [{linear: 2}, tanh, {linear: 1}]
    optimizer: {name: adamw, lr: 0.1, weight_decay: 0.5}
    groups: [{match: "^0[.]", frozen: true}]
ops:
  out: {forward: net, inputs: x}
  error: {call: mean, inputs: out}
  step: {update: net, loss: error}
  slow: {ema: net, decay: 0.5}
"""
X = {"x": np.array([[0.3, -0.2], [0.1, 0.7]])}


def test_frozen_parameters_keep_their_values_whatever_the_weight_decay(backend: str) -> None:
    step = build_step(FROZEN, backend)
    before = dict(weights(step))
    step(X)
    changed = {name for name, value in weights(step).items() if not np.array_equal(value, before[name])}
    assert changed == {"net.2.weight", "net.2.bias", "slow.2.weight", "slow.2.bias"}


def test_optimizers_keep_nothing_for_them(backend: str) -> None:
    step = build_step(FROZEN, backend)
    step(X)
    kept = {name.removeprefix("optimizers.net.exp_avg.") for name in step.state().arrays if ".exp_avg." in name}
    assert kept == {"2.weight", "2.bias"}


def test_averages_have_them_as_they_are(backend: str) -> None:
    step = build_step(FROZEN, backend)
    set_weights(step, {"net.0.weight": [[1, 2], [3, 4]], "slow.0.weight": [[0, 0], [0, 0]]})
    step(X)
    assert np.allclose(weights(step)["slow.0.weight"], [[0.5, 1], [1.5, 2]])


def test_a_gradient_as_a_value_has_no_part_for_them(backend: str) -> None:
    text = FROZEN.replace("{update: net, loss: error}", "{update: net, gradients: short}").replace(
        "  slow:", "  slopes: {gradient: error, wrt: net}\n  SHORT\n  slow:"
    )
    text = text.replace("SHORT", "short: {transform: clip_norm, inputs: slopes, args: {norm: 1e-3}}")
    step = build_step(text.replace("name: adamw, lr: 0.1, weight_decay: 0.5", "name: sgd, lr: 1.0"), backend)
    before = dict(weights(step))
    step(X)
    moved = np.concatenate(
        [(before[f"net.2.{one}"] - weights(step)[f"net.2.{one}"]).ravel() for one in ("weight", "bias")]
    )
    assert np.isclose(np.linalg.norm(moved), 1e-3)
