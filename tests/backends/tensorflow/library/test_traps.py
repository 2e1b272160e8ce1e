"""What TensorFlow and Keras mean by a name where it is not what is right: their number, the right one, and ours."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import tensorflow as tf

from runtime.backends.tensorflow.library.activations import LeakyReLU
from runtime.backends.tensorflow.library.adaptive import Adagrad
from runtime.backends.tensorflow.library.gradients import gradients
from runtime.backends.tensorflow.library.layers import Sequential
from runtime.backends.tensorflow.library.normalization import moments
from runtime.backends.tensorflow.library.optimizers import SGD, Adam

# The published numbers: 0.1 twice at one row is 0.2 once. Keras steps on the rows as they come, one after the other.
ROWS = {
    "sgd": (SGD, {"lr": 3.0}, keras.optimizers.SGD, {"learning_rate": 3.0}, 1.4, 1.4),
    "adagrad": (
        Adagrad,
        {"lr": 3.0, "initial_accumulator_value": 0.1},
        keras.optimizers.Adagrad,
        {"learning_rate": 3.0, "initial_accumulator_value": 0.1},
        0.3964325,
        0.2679498,
    ),
    "adam": (Adam, {"lr": 0.1}, keras.optimizers.Adam, {"learning_rate": 0.1}, 1.9, 1.8585827),
}


def look_up_twice(table):
    """Return the tape and the loss of a row that is looked up twice."""
    with tf.GradientTape() as tape:
        loss = 0.1 * tf.reduce_sum(tf.gather(table, [1, 1]))
    return tape, loss


@pytest.mark.parametrize("case", ROWS.values(), ids=ROWS)
def test_the_gradients_of_a_row_that_is_used_twice_are_added_before_the_step(case):
    rule, options, theirs, named, right, keras_number = case
    ours, other = tf.Variable([[1.0], [2.0]]), keras.Variable([[1.0], [2.0]])
    tape, loss = look_up_twice(ours)
    rule([ours], **options).apply(gradients(tape, loss, [ours]))
    tape, loss = look_up_twice(other.value)
    theirs(**named).apply([tape.gradient(loss, other.value)], [other])
    assert float(ours[1, 0]) == pytest.approx(right, rel=1e-6)
    assert float(other.value[1, 0]) == pytest.approx(keras_number, rel=1e-6)


def second_derivatives(variance):
    """Return the second derivatives of the variance of three numbers."""
    x = tf.constant([1.0, 2.0, 4.0], tf.float64)
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            y = tf.squeeze(variance(x))
        first = inner.gradient(y, x)
    return outer.jacobian(first, x).numpy()


def test_the_second_derivative_of_a_variance_counts_the_mean_in_it():
    right = 2 / 3 * (np.eye(3) - 1 / 3)  # of sum (x - mean)^2 / 3
    np.testing.assert_allclose(second_derivatives(lambda x: moments(x, [0])[1]), right, rtol=1e-14)
    for theirs in (lambda x: tf.nn.moments(x, [0])[1], lambda x: keras.ops.moments(x, 0)[1]):
        np.testing.assert_allclose(second_derivatives(theirs), 2 / 3 * np.eye(3), rtol=1e-14)


def test_the_slope_of_leaky_relu_is_exact_in_float64():
    x = tf.constant([[-1.0]], tf.float64)
    assert float(Sequential(LeakyReLU(0.2), dtype=tf.float64)(x)[0, 0]) == -0.2
    assert float(tf.nn.leaky_relu(x, 0.2)[0, 0]) == -float(np.float32(0.2))
