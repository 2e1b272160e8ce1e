"""A gradient by what an inner layer gave, of a loss made from what the model gave in the same call."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import SpecError, load
from tests.features.steps import build_step, set_weights, weights

FIRST = np.linspace(-1, 1, 12).reshape(3, 4)
SECOND = np.linspace(1, -0.5, 6).reshape(2, 3)
X = np.random.default_rng(5).normal(size=(5, 4))
PLAIN = "layers: [{linear: {out: 3, bias: false}}, tanh, {linear: {out: 2, bias: false}}]"
SPEC = """
graphspec: 1
name: tapped
inputs: {x: {shape: [batch, 4]}}
models:
  net: {MODEL, optimizer: {name: sgd, lr: 0.5}}
  free: {parameter: {shape: []}, optimizer: sgd}
ops:
  seen: {forward: net, inputs: x, outputs: [out, {hidden: {tap: 1}}]}
  fit: {loss: mse, inputs: [out, 0.0]}
  slope: {gradient: fit, wrt: hidden}
  OPS
outputs: [hidden, slope]
"""
STEP = "step: {update: net, loss: fit}"
REST = "value: {forward: free}\n  cost: {call: square, inputs: value}\n  step: {update: free, loss: cost}"


def make(backend: str, ops: str, model: str = PLAIN, settings: tuple[str, ...] = ()):
    """Return a step with further ops and the weights of this module."""
    step = build_step(SPEC.replace("OPS", ops).replace("MODEL", model), backend, settings)
    set_weights(step, {"net.0.weight": FIRST, "net.2.weight": SECOND})
    return step


def arrays(outputs) -> dict[str, np.ndarray]:
    """Return outputs as arrays."""
    return {name: np.asarray(value) for name, value in outputs.items()}


def differentiate(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return the inner layer's result, the slope of the loss by it, and the slopes by both weights."""
    hidden = np.tanh(X @ first.T)
    outer = 2 * hidden @ second.T / (len(X) * 2)
    slope = outer @ second
    return hidden, slope, (slope * (1 - hidden**2)).T @ X, outer.T @ hidden


@pytest.mark.parametrize("parts", [1, 2])
def test_beside_the_update_of_the_model(backend: str, parts: int) -> None:
    step = make(backend, STEP, settings=(f"micro_batches={parts}",))
    first, second = FIRST, SECOND
    for _ in range(3):
        found = arrays(step({"x": X}))
        hidden, slope, by_first, by_second = differentiate(first, second)
        assert np.allclose(found["hidden"], hidden)
        assert np.allclose(found["slope"], slope)
        first, second = first - 0.5 * by_first, second - 0.5 * by_second
        assert np.allclose(weights(step)["net.0.weight"], first)
        assert np.allclose(weights(step)["net.2.weight"], second)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_of_a_model_that_nothing_trains(backend: str, mode: str) -> None:
    found = arrays(make(backend, REST)({"x": X}, mode=mode))
    hidden, slope, _, _ = differentiate(FIRST, SECOND)
    assert np.allclose(found["hidden"], hidden)
    assert np.allclose(found["slope"], slope)


def test_from_a_layer_without_weights_before_it(backend: str) -> None:
    bare = "layers: [identity, tanh, {linear: {out: 2, bias: false}}]"
    text = SPEC.replace("OPS", REST).replace("MODEL", bare)
    step = build_step(text, backend)
    weight = np.linspace(-1, 1, 8).reshape(2, 4)
    set_weights(step, {"net.2.weight": weight})
    outer = 2 * np.tanh(X) @ weight.T / (len(X) * 2)
    assert np.allclose(arrays(step({"x": X}))["slope"], outer @ weight)


def test_a_use_of_its_own_counts_too(backend: str) -> None:
    ops = f"""size: {{call: mean, inputs: hidden}}
  whole: {{call: add, inputs: [fit, size]}}
  steep: {{gradient: whole, wrt: hidden}}
  {STEP}"""
    text = SPEC.replace("outputs: [hidden, slope]", "outputs: [hidden, slope, steep]")
    step = build_step(text.replace("OPS", ops).replace("MODEL", PLAIN), backend)
    set_weights(step, {"net.0.weight": FIRST, "net.2.weight": SECOND})
    found = arrays(step({"x": X}))
    _, slope, _, _ = differentiate(FIRST, SECOND)
    assert np.allclose(found["slope"], slope)
    assert np.allclose(found["steep"], slope + 1 / slope.size)


def test_a_penalty_on_it_trains_the_model(backend: str) -> None:
    ops = """steep: {loss: mse, inputs: [slope, 0.0]}
  whole: {call: add, inputs: [fit, steep]}
  step: {update: net, loss: whole}"""
    step = make(backend, ops)
    step({"x": X})

    def loss(first: np.ndarray, second: np.ndarray) -> float:
        """Return the loss with its penalty."""
        hidden, slope, _, _ = differentiate(first, second)
        return float(np.mean((hidden @ second.T) ** 2) + np.mean(slope**2))

    after, small = weights(step), 1e-6
    for name, weight in (("net.0.weight", FIRST), ("net.2.weight", SECOND)):
        for place in np.ndindex(weight.shape):
            shift = np.zeros_like(weight)
            shift[place] = small
            ways = [(FIRST + s * shift, SECOND) if weight is FIRST else (FIRST, SECOND + s * shift) for s in (1, -1)]
            numeric = (loss(*ways[0]) - loss(*ways[1])) / (2 * small)
            assert np.isclose((weight - after[name])[place] / 0.5, numeric, rtol=1e-5, atol=1e-8)


MAP = """
graphspec: 1
name: map
inputs: {image: {shape: [batch, 2, 5, 5]}}
models:
  net: {layers: [{conv2d: {out: 3, kernel: 2}}, relu, {max_pool: 2}, {conv2d: {out: 2, kernel: 1}}, global_avg_pool]}
ops:
  seen: {forward: net, inputs: image, outputs: [scores, {maps: {tap: 1}}, {pooled: {tap: 2}}]}
  score: {call: sum, inputs: scores}
  by: {gradient: score, wrt: [maps, pooled], outputs: [by_maps, by_pooled]}
outputs: [maps, pooled, by_maps, by_pooled]
"""


def test_of_maps_of_a_convolution(backend: str) -> None:
    step = build_step(MAP, backend)
    found = arrays(step({"image": np.random.default_rng(2).normal(size=(3, 2, 5, 5))}, mode="eval"))
    by_pooled = weights(step)["net.3.weight"].sum(0).reshape(1, 3, 1, 1) / 4 * np.ones((3, 3, 2, 2))
    windows = found["pooled"].repeat(2, axis=2).repeat(2, axis=3)
    greatest = (found["maps"] == windows) & (windows > 0)
    assert np.allclose(found["by_pooled"], by_pooled)
    assert np.allclose(found["by_maps"][greatest], by_pooled.repeat(2, axis=2).repeat(2, axis=3)[greatest])
    assert np.allclose(found["by_maps"][~greatest & (windows > 0)], 0)


OWN = (
    "class: {torch: 'tests.features.factories:make_deep_torch', tensorflow: 'tests.features.factories:make_deep_keras'}"
)


def test_of_a_class(backend: str) -> None:
    step = build_step(SPEC.replace("OPS", REST).replace("MODEL", OWN), backend)
    values = {name: value for name, value in weights(step).items() if name.startswith("net.")}
    (last,) = (value for value in values.values() if 2 in value.shape)
    last = last if last.shape[0] == 2 else last.T
    found = arrays(step({"x": X}))
    assert np.allclose(found["slope"], 2 * found["hidden"] @ last.T / (len(X) * 2) @ last)


@pytest.mark.parametrize("setting", ["precision=bfloat16", "ops.fit.inputs=[hidden, 0.0]"])
def test_what_no_path_of_the_same_numbers_leads_to_is_refused(backend: str, setting: str) -> None:
    text = SPEC.replace("OPS", STEP.replace("fit", "last") + "\n  last: {loss: mse, inputs: [out, 0.0]}")
    text = text.replace("MODEL", PLAIN)
    if "hidden" in setting:
        text = text.replace("wrt: hidden", "wrt: out")
    with pytest.raises(SpecError, match="E-NO-GRADIENT"):
        compile_step(load(text, [setting]), backend)
