"""A loss that does not reach all it is differentiated by: accepted where the spec says what that means."""

from __future__ import annotations

import numpy as np
import pytest

from graphspec import SpecError
from tests.features.steps import build_step, set_weights, weights

SPEC = """
graphspec: 1
name: unreached
inputs: {x: {shape: [batch, 2]}}
models:
  a: {layers: [{linear: {out: 1, bias: false}}], optimizer: {name: sgd, lr: 0.1, weight_decay: 0.5}}
  b: {layers: [{linear: {out: 1, bias: false}}], optimizer: {name: sgd, lr: 0.1, weight_decay: 0.5}}
ops:
  seen: {forward: a, inputs: x}
  other: {forward: b, inputs: x}
  fit: {call: mean, inputs: seen}
  OPS
outputs: [fit, other]
"""
X = np.array([[1.0, 2.0], [3.0, 6.0]])
START = np.array([[1.0, 2.0]])
MOVED = START - 0.1 * (X.mean(0) + 0.5 * START)
DECAYED = START - 0.1 * 0.5 * START
"""What a gradient of zeros leaves of a weight: None would leave all of it."""


@pytest.mark.parametrize(
    ("ops", "a", "b"),
    [
        ("step: {update: [a, b], loss: fit, missing: skip}", MOVED, START),
        ("step: {update: [a, b], loss: fit, missing: zero}", MOVED, DECAYED),
        ("step: {update: b, loss: fit, missing: skip}", START, START),
        ("step: {update: b, loss: fit, missing: zero}", START, DECAYED),
        ("g: {gradient: fit, wrt: [a, b], unconnected: zero}\n  step: {update: [a, b], gradients: g}", MOVED, DECAYED),
        (
            "g: {gradient: fit, wrt: b, unconnected: skip}\n  step: {update: b, gradients: g, missing: skip}",
            START,
            START,
        ),
    ],
)
def test_a_model_that_the_loss_never_reaches_does_what_the_update_says(
    backend: str, ops: str, a: np.ndarray, b: np.ndarray
) -> None:
    step = build_step(SPEC.replace("OPS", ops), backend)
    set_weights(step, {"a.0.weight": START, "b.0.weight": START})
    step({"x": X})
    assert np.allclose(weights(step)["a.0.weight"], a, atol=1e-12)
    assert np.allclose(weights(step)["b.0.weight"], b, atol=1e-12)


def test_without_a_word_it_is_refused(backend: str) -> None:
    with pytest.raises(SpecError, match="E-NO-GRADIENT"):
        build_step(SPEC.replace("OPS", "step: {update: [a, b], loss: fit}"), backend)


def test_a_value_that_is_made_after_the_loss_has_a_slope_of_zeros(backend: str) -> None:
    ops = "slope: {gradient: fit, wrt: other, unconnected: zero}\n  step: {update: a, loss: fit}"
    text = SPEC.replace("OPS", ops).replace("[fit, other]", "[slope]")
    assert np.array_equal(np.asarray(build_step(text, backend)({"x": X})["slope"]), np.zeros((2, 1)))


def test_scores_that_are_added_inside_a_sum_are_no_terms(backend: str) -> None:
    ops = """score: {call: add, inputs: [seen, other]}
  kept: {call: stop, inputs: other}
  whole: {call: add, inputs: [seen, kept]}
  total: {call: sum, inputs: whole}
  slope: {gradient: total, wrt: a}
  step: {update: a, gradients: slope}"""
    step = build_step(SPEC.replace("OPS", ops), backend)
    set_weights(step, {"a.0.weight": START, "b.0.weight": START})
    step({"x": X})
    assert np.allclose(weights(step)["a.0.weight"], START - 0.1 * (X.sum(0) + 0.5 * START), atol=1e-12)


def test_what_grad_outputs_weigh_is_no_sum_of_terms(backend: str) -> None:
    ops = """kept: {call: stop, inputs: other}
  score: {call: add, inputs: [seen, kept]}
  weigh: {random: normal, like: score}
  slope: {gradient: score, wrt: a, grad_outputs: weigh}
  step: {update: a, gradients: slope}"""
    step = build_step(SPEC.replace("OPS", ops).replace("[fit, other]", "[weigh]"), backend)
    set_weights(step, {"a.0.weight": START})
    weight = np.asarray(step({"x": X})["weigh"])
    assert np.allclose(weights(step)["a.0.weight"], START - 0.1 * (weight.T @ X + 0.5 * START), atol=1e-12)
