"""`reshape` keeps the rows of a batch, of whatever size, where its shape begins with `batch`."""

from __future__ import annotations

import numpy as np
import pytest

from compiler import compile_step
from graphspec import SpecError, load
from runtime import StepError
from tests.features.steps import build_step, set_weights, weights

SPEC = """
graphspec: 1
name: reshaped
inputs: {x: {shape: [batch, 8]}}
models:
  net: {layers: [{linear: {out: 8, bias: false}}], optimizer: {name: sgd, lr: 0.5}}
  own:
    class: {torch: 'tests.features.factories:make_torch', tensorflow: 'tests.features.factories:make_keras'}
    args: {width: 6}
ops:
  seen: {forward: net, inputs: x}
  pairs: {call: reshape, inputs: seen, args: {shape: [batch, -1, 2]}}
  squared: {call: square, inputs: pairs}
  last: {call: slice, inputs: squared, args: {start: 2, axis: 1}}
  flat: {call: reshape, inputs: last, args: {shape: [batch, 4]}}
  fit: {loss: mse, inputs: [flat, 1.0]}
  step: {update: net, loss: fit}
  few: {call: slice, inputs: x, args: {stop: 4}}
  hidden: {forward: own, inputs: few}
  unseen: {call: reshape, inputs: hidden, args: {shape: [batch, 2, -1]}}
outputs: [pairs, flat, hidden, unseen]
"""


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_the_rows_of_any_batch_stay_apart(backend: str, parts: int) -> None:
    step = build_step(SPEC, backend, [f"micro_batches={parts}"])
    weight = np.linspace(-1, 1, 64).reshape(8, 8)
    set_weights(step, {"net.0.weight": weight})
    for rows in (5, 3):
        x = np.random.default_rng(rows).normal(size=(rows, 8))
        found = {name: np.asarray(value) for name, value in step({"x": x}).items()}
        seen = x @ weight.T
        assert np.allclose(found["pairs"], seen.reshape(rows, 4, 2))
        assert np.allclose(found["flat"], seen[:, 4:] ** 2)
        assert np.array_equal(found["unseen"], found["hidden"].reshape(rows, 2, 3))
        slope = 2 * (seen[:, 4:] ** 2 - 1) / (rows * 4) * 2 * seen[:, 4:]
        weight = np.concatenate([weight[:4], weight[4:] - 0.5 * slope.T @ x])
        assert np.allclose(weights(step)["net.0.weight"], weight)


def test_rows_of_another_number_are_refused_where_they_are_seen(backend: str) -> None:
    text = SPEC.replace("[batch, -1, 2]", "[batch, 2, 2]")
    with pytest.raises(SpecError, match=r"(?s)E-SHAPE.*elements"):
        compile_step(load(text), backend)
    twice = "  twice: {call: concat, inputs: [seen, seen], args: {axis: 0}}\n  pairs: {call: reshape, inputs: twice,"
    with pytest.raises(SpecError, match=r"(?s)E-SHAPE.*first axis is `batch`.*write -1"):
        compile_step(load(SPEC.replace("  pairs: {call: reshape, inputs: seen,", twice)), backend)


def test_they_are_refused_by_build_where_only_it_sees_them(backend: str) -> None:
    with pytest.raises(StepError, match=r"op 'unseen' (raised|failed)"):
        build_step(SPEC.replace("[batch, 2, -1]", "[batch, 2, 2]"), backend)
