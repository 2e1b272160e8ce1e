"""What Keras 3 does wrong with loss scales and rates that this does too: its number, the right one, and ours."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.conformance import traced
from tests.features.steps import build_step, weights

SPEC = """
graphspec: 1
name: scaled
precision: {loss_scale: {initial: 4}}
inputs: {x: {shape: [batch]}}
models:
  v:
    parameter: {shape: [], init: 0.0}
    optimizer: {name: adam, lr: {schedule: step, from: 0.1, factor: 0.5, every: 1}}
ops:
  w: {forward: v}
  product: {call: mul, inputs: [x, w]}
  cost: {call: mean, inputs: product}
  step: {update: v, loss: cost}
"""
COUNTED = '  counted: {call: "tests.conformance.traced:count", inputs: w}\n  cost:'
UNSCALED = ("precision.loss_scale=none",)
ONE, BURST = {"x": np.ones(1)}, {"x": np.array([np.inf])}


def keras_adam(*, scaled: bool) -> keras.optimizers.Optimizer:
    """Return an optimizer of Keras that was applied once."""
    inner, variable = keras.optimizers.Adam(0.1), keras.Variable([1.0])
    optimizer = keras.optimizers.LossScaleOptimizer(inner) if scaled else inner
    optimizer.build([variable])
    optimizer.apply([tf.constant([1.0])], [variable])
    return optimizer


@pytest.mark.parametrize("was_scaled", [False, True])
def test_a_checkpoint_outlives_a_loss_scale_that_comes_or_goes(was_scaled: bool) -> None:
    kept: dict[str, np.ndarray] = {}
    keras_adam(scaled=was_scaled).save_own_variables(kept)
    plain = keras.optimizers.Adam(0.1)
    other = plain if was_scaled else keras.optimizers.LossScaleOptimizer(plain)
    other.build([keras.Variable([1.0])])
    with pytest.warns(UserWarning, match="Skipping variable loading"):
        other.load_own_variables(kept)
    assert int(plain.iterations) == 0  # of Keras; 1 is right
    settings = [(), UNSCALED] if was_scaled else [UNSCALED, ()]
    one, two = (build_step(SPEC, "tensorflow", each) for each in settings)
    one(ONE)
    two.restore(one.state())
    assert two.optimizers["v"].iterations == 1
    for step in (one, two):
        step(ONE)
    assert weights(two)["v.value"] == weights(one)["v.value"]


def test_a_loss_scale_stays_above_zero_however_often_it_is_halved() -> None:
    inner, variable = keras.optimizers.SGD(0.1), keras.Variable(1.0)
    theirs = keras.optimizers.LossScaleOptimizer(inner, initial_scale=4.0)
    theirs.build([variable])
    for _ in range(160):
        theirs.apply([tf.constant(np.inf)], [variable])
    assert float(theirs.dynamic_scale) == 0.0  # from then on every gradient is 0 / 0; the least that is of use is 1
    step = build_step(SPEC, "tensorflow")
    for _ in range(10):
        step(BURST)
    assert step.report.scale_after == 1.0
    step(ONE)
    assert step.report.fired == ("step",)


def test_a_rate_that_changes_traces_nothing_anew() -> None:
    optimizer, variable, seen = keras.optimizers.SGD(0.1), keras.Variable(1.0), []
    optimizer.build([variable])

    @tf.function
    def descend(rate):
        seen.append(rate)
        optimizer.learning_rate = rate
        optimizer.apply([tf.constant(1.0)], [variable])

    for rate in (0.1, 0.05, 0.025):
        descend(rate)
    assert len(seen) == 3  # a number of Python is a part of the graph; one graph is right
    traced.COUNT[0] = 0
    step = build_step(SPEC.replace("inputs: [x, w]", "inputs: [x, counted]").replace("  cost:", COUNTED), "tensorflow")
    for _ in range(3):
        step(ONE)
    assert traced.COUNT == [1]
    assert float(step.optimizers["v"].learning_rate) == 0.0125
