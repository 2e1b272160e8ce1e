"""A `constraint` is part of the update's write: after the optimizer's rule, before any average that follows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from runtime import StepError
from tests.features.steps import build_step, set_weights, weights

pytestmark = pytest.mark.row("D8")

MINIMISE = """
graphspec: 1
name: minimise
models:
  v0: {parameter: {shape: [2]}, optimizer: {name: sgd, lr: 3.0}, constraint: {clip: [-0.1, 0]}}
  v1: {parameter: {shape: [2]}, optimizer: {name: sgd, lr: 3.0}, constraint: {clip: [0, 1]}}
ops:
  a: {forward: v0}
  b: {forward: v1}
  five: {call: mul, inputs: [a, 5.0]}
  three: {call: mul, inputs: [b, 3.0]}
  both: {call: add, inputs: [five, three]}
  cost: {call: sum, inputs: both}
  step: {update: [v0, v1], loss: cost}
outputs: [cost]
"""


def run(text: str, backend: str, v0: object = (1, 2), v1: object = (3, 4)) -> tuple[np.ndarray, np.ndarray]:
    """Return both variables after one step."""
    step = build_step(text, backend)
    set_weights(step, {"v0.value": v0, "v1.value": v1})
    step({})
    return weights(step)["v0.value"], weights(step)["v1.value"]


def test_tensorflows_own_numbers(backend: str) -> None:
    v0, v1 = run(MINIMISE, backend)
    assert np.allclose(v0, [-0.1, -0.1])
    assert np.allclose(v1, [0, 0])


ALONE = MINIMISE.replace("{call: sum, inputs: both}", "{call: sum, inputs: five}").replace("[v0, v1], loss", "v0, loss")


@pytest.mark.parametrize("text", [ALONE, MINIMISE.replace("loss: cost}", "loss: cost, every: 2}")])
def test_a_variable_without_a_step_keeps_its_value(text: str, backend: str) -> None:
    _, v1 = run(text, backend)
    assert np.array_equal(v1, [3, 4])


def test_the_constraint_of_an_update_takes_the_place_of_those_of_its_models(backend: str) -> None:
    v0, v1 = run(MINIMISE.replace("loss: cost}", "loss: cost, constraint: {clip: [-13.5, 9]}}"), backend)
    assert np.allclose(v0, [-13.5, -13])
    assert np.allclose(v1, [-6, -5])


def test_an_average_reads_what_satisfies_it(backend: str) -> None:
    text = MINIMISE.replace("outputs:", "  slow: {ema: v0, into: copy_of_v0, decay: 0.0}\noutputs:")
    step = build_step(text.replace("  v1:", "  copy_of_v0: {like: v0}\n  v1:"), backend)
    set_weights(step, {"v0.value": [1, 2]})
    step({})
    assert np.allclose(weights(step)["copy_of_v0.value"], [-0.1, -0.1])


MATRIX = """
graphspec: 1
name: matrix
inputs: {x: {shape: [batch, 3]}}
models:
  net: {layers: [{linear: 2}], optimizer: {name: sgd, lr: 0.0}, constraint: CONSTRAINT}
ops:
  out: {forward: net, inputs: x}
  cost: {call: mean, inputs: out}
  step: {update: net, loss: cost}
"""
W = np.array([[3.0, 4.0, 0.0], [-0.3, 0.0, 0.4]])
B = np.array([-6.0, 8.0])


def unit(w: np.ndarray) -> np.ndarray:
    """Return each row of a matrix, or a vector, divided by its length."""
    return w / np.linalg.norm(w, axis=-1, keepdims=True)


PROJECTIONS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "non_negative": ("non_negative", lambda w: np.maximum(w, 0)),
    "unit_norm": ("unit_norm", unit),
    "max_norm": ("max_norm", lambda w: w * np.minimum(1, 2 / np.linalg.norm(w, axis=-1, keepdims=True))),
    "max_norm 1": ("{max_norm: 1}", lambda w: w * np.minimum(1, 1 / np.linalg.norm(w, axis=-1, keepdims=True))),
    "a function": ("tests.features.terms:halve", lambda w: w / 2),
    "two": ("[{clip: [-1, 1]}, tests.features.terms:halve]", lambda w: np.clip(w, -1, 1) / 2),
}


@pytest.mark.parametrize("name", PROJECTIONS)
def test_weights_are_projected_unit_by_unit(name: str, backend: str) -> None:
    written, projected = PROJECTIONS[name]
    step = build_step(MATRIX.replace("CONSTRAINT", written), backend)
    set_weights(step, {"net.0.weight": W, "net.0.bias": B})
    step({"x": np.ones((2, 3))})
    assert np.allclose(weights(step)["net.0.weight"], projected(W), rtol=1e-15)
    assert np.allclose(weights(step)["net.0.bias"], projected(B), rtol=1e-15)


def test_an_axis_and_a_pattern_choose_what_is_projected(backend: str) -> None:
    step = build_step(MATRIX.replace("CONSTRAINT", "{max_norm: 1, axis: 0, match: weight}"), backend)
    set_weights(step, {"net.0.weight": W, "net.0.bias": B})
    step({"x": np.ones((2, 3))})
    expected = W * np.minimum(1, 1 / np.maximum(np.linalg.norm(W, axis=0, keepdims=True), 1e-30))
    assert np.allclose(weights(step)["net.0.weight"], expected)
    assert np.array_equal(weights(step)["net.0.bias"], B)


@pytest.mark.needs("tensorflow")
def test_norms_are_taken_as_keras_takes_them_of_its_transposed_kernels() -> None:
    import keras

    step = build_step(MATRIX.replace("CONSTRAINT", "{max_norm: 1, match: weight}"), "tensorflow")
    set_weights(step, {"net.0.weight": W})
    step({"x": np.ones((2, 3))})
    kernel = np.asarray(keras.constraints.MaxNorm(1.0, axis=0)(W.T))
    assert np.allclose(weights(step)["net.0.weight"], kernel.T, atol=1e-6)


def test_what_is_zero_stays_zero(backend: str) -> None:
    step = build_step(MATRIX.replace("CONSTRAINT", "[unit_norm, max_norm]"), backend)
    set_weights(step, {"net.0.weight": 0 * W, "net.0.bias": 0 * B})
    step({"x": np.ones((2, 3))})
    assert np.array_equal(weights(step)["net.0.weight"], 0 * W)


def test_the_norm_of_a_single_number_is_its_absolute_value(backend: str) -> None:
    text = MINIMISE.replace("clip: [-0.1, 0]", "unit_norm: true").replace("clip: [0, 1]", "max_norm: 2")
    v0, v1 = run(text.replace("shape: [2]", "shape: []"), backend, 10.0, 1.0)  # stepped to -5 and to -8
    assert (float(v0), float(v1)) == (-1.0, -2.0)


def test_a_function_that_changes_the_shape_is_refused_when_the_step_is_built(backend: str) -> None:
    with pytest.raises(StepError, match="the constraint made"):
        build_step(MATRIX.replace("CONSTRAINT", "tests.features.terms:first_row"), backend)
