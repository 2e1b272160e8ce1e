"""A sum over a parameter beside a mean over rows: in a window it counts once, as in one large batch."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import SpecError, load
from tests.features.steps import build_step, set_weights, weights

SPEC = """
graphspec: 1
name: summed
inputs: {x: {shape: [batch, 3]}}
models:
  a: {layers: [{linear: {out: 1, bias: false}}], optimizer: {name: sgd, lr: 0.1}}
  w: {parameter: {shape: [3], init: 2.0}, optimizer: {name: sgd, lr: 0.1}}
ops:
  out: {forward: a, inputs: x}
  fit: {call: mean, inputs: out}
  part: {forward: w}
  small: {loss: mse, inputs: [part, 0.0], reduction: sum, weight: 0.5}
  cost: {call: add, inputs: [fit, small]}
  step: {update: [a, w], loss: cost, accumulate: 2}
outputs: [cost]
"""
START = np.array([[1.0, 2.0, 3.0]])
ONE, THREE = np.full((1, 3), 5.0), np.arange(9.0).reshape(3, 3)


def test_it_counts_once(backend: str) -> None:
    step = build_step(SPEC, backend)
    set_weights(step, {"a.0.weight": START})
    step({"x": ONE})
    step({"x": THREE})
    assert np.allclose(weights(step)["w.value"], 2.0 - 0.1 * 2.0, atol=1e-12)  # the slope of w^2 / 2 is w
    rows = np.concatenate([ONE, THREE])
    assert np.allclose(weights(step)["a.0.weight"], START - 0.1 * rows.mean(0), atol=1e-12)


def test_a_sum_over_rows_beside_a_mean_does_not_fit() -> None:
    text = SPEC.replace("fit: {call: mean, inputs: out}", "fit: {loss: mse, inputs: [out, 0.0], reduction: sum}")
    text = text.replace("reduction: sum, weight: 0.5}", "weight: 0.5}")
    with pytest.raises(SpecError, match="E-COUNTS"):
        compile_step(load(text))


def test_sums_alone_are_added_up(backend: str) -> None:
    step = build_step(SPEC.replace("fit: {call: mean", "fit: {loss: wasserstein, reduction: sum"), backend)
    set_weights(step, {"a.0.weight": START})
    step({"x": ONE})
    step({"x": THREE})
    rows = np.concatenate([ONE, THREE])
    assert np.allclose(weights(step)["a.0.weight"], START - 0.1 * rows.sum(0), atol=1e-12)
