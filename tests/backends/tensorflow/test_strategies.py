"""Models that belong to a tf.distribute strategy are refused: a step is no replica of one."""

from __future__ import annotations

import keras
import pytest
import tensorflow as tf

from graphspec import SpecError
from runtime import build
from tests.backends.tensorflow.specs import build_of, plan_of

HERE = "tests.backends.tensorflow.test_strategies"
NET = "{class: 'zoo:Net', optimizer: {name: sgd, lr: 0.1}}"


class Plain(tf.Module):
    """A module of TensorFlow."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.ones((4, 3)))

    def __call__(self, x):
        return x @ self.weight


def dense() -> keras.Model:
    return keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)])


def mirroring() -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy(["cpu:0"])


def mirrored() -> keras.Model:
    """Return a model made under a strategy, as a `class:` of a spec may."""
    with mirroring().scope():
        return dense()


@pytest.mark.parametrize("make", [dense, Plain])
def test_a_model_made_under_a_strategy_is_refused(make):
    with mirroring().scope():
        model = make()
    with pytest.raises(
        SpecError, match=r"GS273.*model 'net': its variable .* was made under MirroredStrategy"
    ) as raised:
        build_of(NET, models={"net": model})
    assert "outside of `strategy.scope()`" in raised.value.diagnostics[0].help


def test_a_factory_that_makes_its_model_under_a_strategy_is_refused():
    with pytest.raises(SpecError, match=r"GS273.*MirroredStrategy"):
        build(plan_of(f"{{class: '{HERE}:mirrored', optimizer: sgd}}"), allow=[HERE])


def test_a_step_built_inside_of_a_scope_is_refused():
    with mirroring().scope(), pytest.raises(SpecError, match=r"GS273.*`build` is called inside the scope"):
        build_of("{layers: [{linear: 3}], optimizer: sgd}")


def test_a_strategy_of_one_device_makes_plain_variables():
    with tf.distribute.OneDeviceStrategy("cpu:0").scope():
        model = dense()
    build_of(NET, models={"net": model})
