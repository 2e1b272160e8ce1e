"""Rows that a batch names several times are stepped once, on the sum of their gradients: 0.1 twice is 0.2 once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from runtime import Step
from tests.features.steps import build_step, set_weights, weights

pytestmark = pytest.mark.row("D10")

SPEC = """
graphspec: 1
name: repeated
inputs: {ids: {shape: [batch], dtype: int64}, more: {shape: [others], dtype: int64}}
models: {table: {layers: [{embedding: {count: 2, size: 1, sparse: true}}], optimizer: OPTIMIZER}}
ops:
  rows: {forward: table, inputs: ids}
  total: {call: sum, inputs: rows}
  again: {forward: table, inputs: more}
  others: {call: sum, inputs: again}
  both: {call: add, inputs: [total, others]}
  loss: {call: mul, inputs: [LOSS, 0.1]}
  step: {update: table, loss: loss}
"""
TABLE = "table.0.weight"
KNOWN = {
    "{name: sgd, lr: 3.0": 1.4,
    "{name: adagrad, lr: 3.0, initial_accumulator_value: 0.1": 0.3964325,
    "{name: adam, lr: 0.1": 1.9,
}
"""By rule, what TensorFlow's own tests expect of 2 after a step on 0.1 twice."""


def take_step(optimizer: str, loss: str, ids: list[int], more: list[int], backend: str) -> Step:
    step = build_step(SPEC.replace("OPTIMIZER", optimizer).replace("LOSS", loss), backend)
    set_weights(step, {TABLE: [[1.0], [2.0]]})
    step({"ids": np.array(ids), "more": np.array(more)})
    return step


@pytest.mark.parametrize("how", ["lazy", "dense"])
@pytest.mark.parametrize("optimizer", KNOWN)
def test_a_row_that_is_named_twice_moves_once(optimizer: str, how: str, backend: str) -> None:
    written = f"{optimizer}, sparse: {how}}}"
    twice = weights(take_step(written, "total", [1, 1], [0], backend))[TABLE]
    uses = weights(take_step(written, "both", [1], [1], backend))[TABLE]
    assert twice.ravel() == pytest.approx([1.0, KNOWN[optimizer]], abs=1e-7)
    assert np.allclose(uses, twice, rtol=0, atol=1e-15)


@pytest.mark.needs("tensorflow")
@pytest.mark.parametrize(("rule", "its"), [("adagrad", "Adagrad"), ("sgd", "SGD")])
def test_it_is_the_step_of_keras_on_the_sum(rule: str, its: str) -> None:
    import keras
    import tensorflow as tf

    options: dict[str, Any] = {"epsilon": 1e-20, "initial_accumulator_value": 0.1} if rule == "adagrad" else {}
    table: Any = keras.Variable(np.array([[1.0], [2.0]]), dtype="float64")
    peer = getattr(keras.optimizers, its)(learning_rate=0.5, **options)
    slot = ", initial_accumulator_value: 0.1, eps: 1e-20" if options else ""
    step = build_step(
        SPEC.replace("OPTIMIZER", f"{{name: {rule}, lr: 0.5{slot}}}").replace("LOSS", "both"), "tensorflow"
    )
    set_weights(step, {TABLE: [[1.0], [2.0]]})
    for ids, total in (([1, 1], 0.3), ([1, 0, 1], 0.3)):
        step({"ids": np.array(ids), "more": np.array([1])})
        zero = 0.1 * ids.count(0)
        peer.apply([tf.constant([[zero], [total]], tf.float64)], [table])
    assert np.abs(weights(step)[TABLE] - np.asarray(table)).max() < 1e-7
