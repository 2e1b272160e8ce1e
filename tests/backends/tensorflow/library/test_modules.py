"""Models of any kind: names of variables, calls with and without training, generators, inner results, optimizers."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from runtime.backends.tensorflow.library.dense import Linear
from runtime.backends.tensorflow.library.layers import ParameterModel, Residual, Sequential
from runtime.backends.tensorflow.library.modules import (
    buffers_of,
    call_model,
    detached,
    generators_of,
    named_buffers,
    named_parameters,
    parameters_of,
    results,
    watch,
)
from runtime.backends.tensorflow.library.normalization import BatchNorm
from runtime.backends.tensorflow.library.randomness import NativeRandom
from runtime.backends.tensorflow.library.schedules import linear
from runtime.backends.tensorflow.library.wrapped import Wrapped


class Net(keras.Model):
    """A model of Keras by attributes, with a variable of TensorFlow's that Keras does not track."""

    def __init__(self):
        super().__init__()
        self.first = keras.layers.Dense(3)
        self.blocks = [keras.layers.Dense(2), keras.layers.Dropout(0.5)]
        self.scale = tf.Variable(2.0)

    def call(self, x, training=False):
        return self.blocks[1](self.blocks[0](self.first(x)), training=training) * self.scale


class Plain(tf.Module):
    """A plain module, which does not see the variables of the Keras layer in it."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias = tf.Variable([[1.0, 2.0]]), tf.Variable(0.5, trainable=False)
        self.parts = [keras.layers.Dense(1, use_bias=False)]
        self.parts[0].build((None, 2))

    def __call__(self, x):
        return self.parts[0](x @ self.weight) + self.bias

    def double(self, x, training):
        return x * (2.0 if training else 1.0)


def make_net():
    """Return the model of Keras with its variables made."""
    net = Net()
    net(tf.ones((1, 4)))
    return net


def test_the_librarys_models_have_pytorchs_names():
    model = Sequential(Linear(4, 3), Residual(BatchNorm(3), Linear(3, 3, bias=False)))
    assert list(named_parameters(model)) == ["0.weight", "0.bias", "1.0.weight", "1.0.bias", "1.1.weight"]
    assert list(named_buffers(model)) == ["1.0.running_mean", "1.0.running_var", "1.0.num_batches_tracked"]
    assert [variable.name for variable in model.parameters()[:1]] == ["0.weight:0"]
    assert list(named_parameters(ParameterModel((2,)))) == ["value"]


def test_models_of_keras_are_named_by_attributes_or_by_place():
    assert set(named_parameters(make_net())) == {
        "first.kernel",
        "first.bias",
        "blocks.0.kernel",
        "blocks.0.bias",
        "scale",
    }
    stack = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2), keras.layers.BatchNormalization()])
    assert set(named_parameters(stack)) == {"0.kernel", "0.bias", "1.gamma", "1.beta"}
    assert set(named_buffers(stack)) == {"1.moving_mean", "1.moving_variance"}


def test_variables_that_a_layer_of_keras_hides_are_found_under_their_paths():
    attention = keras.layers.MultiHeadAttention(2, 3)
    attention.build((None, 4, 6), (None, 4, 6))
    stack = keras.Sequential([keras.layers.LSTM(3)])
    stack.build((None, 4, 6))
    assert {"query.kernel", "value.bias", "attention_output.kernel"} <= set(named_parameters(attention))
    assert len(named_parameters(attention)) == len(attention.trainable_variables)
    assert len(named_parameters(stack)) == len(stack.trainable_variables) == 3


def test_plain_modules_own_the_variables_of_keras_layers_in_them():
    plain = Plain()
    assert set(named_parameters(plain)) == {"weight", "parts.0.kernel"}
    assert set(named_buffers(plain)) == {"bias"}
    assert len(plain.trainable_variables) == 1  # what TensorFlow sees


def test_every_variable_is_one_of_tensorflows_and_is_found_once():
    net = make_net()
    found = [*parameters_of(net), *buffers_of(net)]
    assert all(isinstance(variable, tf.Variable) for variable in found)
    assert len({id(variable) for variable in found}) == len(found) == 5


def test_training_is_told_to_what_asks_for_it():
    net, plain, x = make_net(), Plain(), tf.ones((1, 1))
    assert np.any(call_model(net, tf.ones((64, 4)), training=True).numpy() == 0)
    assert not np.any(call_model(net, tf.ones((64, 4)), training=False).numpy() == 0)
    assert call_model(plain, x, training=True).shape == (1, 1)
    assert float(call_model(plain, x, training=True, method="double")[0, 0]) == 2


def test_dropout_of_keras_is_keyed_by_the_step_and_the_op():
    net, random, x = make_net(), NativeRandom(0), tf.ones((8, 4))
    states = generators_of(net)

    @tf.function(input_signature=[tf.TensorSpec([], tf.int64)], autograph=False)
    def call(number):
        random.start("train", number)
        random.rekey("a", states)
        return call_model(net, x, training=True)

    first, second, again = (call(number).numpy() for number in (1, 2, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, second)


def test_inner_results_are_left_by_every_call():
    model, net = Sequential(Linear(4, 3), Residual(Linear(3, 3))), make_net()
    ours, theirs = watch(model, "0", "1.0"), watch(net, "first", "blocks.0")
    model(tf.ones((2, 4)))
    net(tf.ones((2, 4)))
    assert {path: tuple(value.shape) for path, value in ours.items()} == {"0": (2, 3), "1.0": (2, 3)}
    assert {path: tuple(value.shape) for path, value in theirs.items()} == {"first": (2, 3), "blocks.0": (2, 2)}
    with pytest.raises(TypeError, match="weight: only the results of layers"):
        watch(Plain(), "weight")


def test_several_results_come_in_order_or_by_name():
    assert results({"b": 2, "a": 1}, "a", "b") == results([1, 2], "a", "b") == (1, 2)
    with pytest.raises(ValueError, match="gave 1 results instead of 2"):
        results([1], "a", "b")
    with tf.GradientTape() as tape:
        x = tf.Variable(1.0)
        (y,) = detached([x * x])
    assert tape.gradient(y, x) is None


def test_an_optimizer_of_keras_follows_a_schedule_in_one_trace():
    weight = tf.Variable([1.0])
    optimizer = Wrapped([weight], keras.optimizers.SGD, lr=linear(1.0, 0.0, 4.0), momentum=0.0)
    step = tf.function(lambda: optimizer.apply([tf.constant([1.0])]), autograph=False)
    values = []
    for _ in range(3):
        step()
        values.append(float(weight[0]))
    assert values == [0, -0.75, -1.25]
    assert (step.experimental_get_tracing_count(), int(optimizer.applied)) == (1, 3)
    with pytest.raises(ValueError, match="momentum: Keras takes a number here"):
        Wrapped([weight], keras.optimizers.SGD, momentum=linear(0.0, 1.0, 4.0))
