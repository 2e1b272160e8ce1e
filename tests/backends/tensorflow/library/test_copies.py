"""A copy of a model has the same numbers in variables of its own, whatever the model is made of."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from runtime.backends.tensorflow.library.copies import copied
from runtime.backends.tensorflow.library.modules import generators_of, named_variables

X = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")


class Mixed(tf.Module):
    """A layer of Keras in a module, under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.factor = keras.layers.Dense(2), tf.Variable(1.0)
        self.same = self.layer

    def __call__(self, x):
        return self.same(x) * self.factor


class Deep(keras.Model):
    """Layers in a list and in a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.named = [keras.layers.Dense(4) for _ in range(2)], {"last": keras.layers.LSTM(3)}

    def call(self, x):
        for block in self.blocks:
            x = block(x)
        return self.named["last"](x[:, None, :])


def functional():
    """Return a graph of layers with a branch and a generator."""
    start = keras.Input((4,))
    hidden = keras.layers.Dropout(0.5)(keras.layers.Dense(5)(start))
    return keras.Model(start, keras.layers.Dense(2)(keras.layers.Concatenate()([hidden, start])))


def sequential():
    """Return layers in a row with statistics."""
    return keras.Sequential([keras.layers.Dense(3), keras.layers.BatchNormalization()])


@pytest.mark.parametrize("make", [functional, sequential, Mixed, Deep, lambda: keras.layers.Dense(3)])
def test_a_copy_has_the_same_numbers_in_its_own_variables(make):
    model = make()
    model(X)
    other = copied(model)
    ours, theirs = ({name: variable for name, variable, _ in named_variables(each)} for each in (model, other))
    assert ours.keys() == theirs.keys()
    assert not {id(each) for each in ours.values()} & {id(each) for each in theirs.values()}
    assert not {id(each) for each in generators_of(model)} & {id(each) for each in generators_of(other)}
    assert np.array_equal(model(X), other(X))
    before = model(X).numpy()
    next(iter(theirs.values())).assign_add(tf.ones_like(next(iter(theirs.values()))))
    assert np.array_equal(model(X), before)
    assert not np.array_equal(other(X), before)
    assert [each.shape for each in other.trainable_variables] == [each.shape for each in model.trainable_variables]


def test_what_cannot_be_copied_raises():
    model = Mixed()
    model.file = open(__file__)  # noqa: SIM115
    with model.file, pytest.raises(TypeError, match="cannot pickle"):
        copied(model)
