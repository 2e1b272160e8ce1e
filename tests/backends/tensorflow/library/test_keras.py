"""What Keras means by a name beside what the language means by it: the rows of docs/backends.md."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from runtime.backends.tensorflow.library import activations, adaptive, losses, normalization, optimizers, pooling
from runtime.backends.tensorflow.library.layers import Sequential

Numbers = Callable[[], float]


def keras_step(kind: type[Any], weight: float, *gradients: tuple[float, float], **options: float) -> float:
    """Return a weight after steps of Keras, each with a gradient and a rate."""
    variable = tf.Variable([weight])
    rule = kind(learning_rate=1.0, **options)
    for gradient, rate in gradients:
        rule.learning_rate = rate
        rule.apply([tf.constant([gradient])], [variable])
    return float(variable[0])


def our_step(kind: type[Any], weight: float, *gradients: tuple[float, float], **options: float) -> float:
    """Return a weight after steps of ours, each with a gradient and a rate."""
    variable = tf.Variable([weight])
    rates = tf.constant([rate for _, rate in gradients], tf.float64)
    rule = kind([variable], lr=lambda n: tf.gather(rates, n), **options)
    for gradient, _ in gradients:
        rule.apply([tf.constant([gradient])])
    return float(variable[0])


ONE = (1.0, 1.0)
RULES: dict[str, tuple[Numbers, float, Numbers, float]] = {
    "sgd, momentum under a rate that falls": (
        lambda: keras_step(keras.optimizers.SGD, 0.0, ONE, (1.0, 0.1), momentum=0.5), -1.6,
        lambda: our_step(optimizers.SGD, 0.0, ONE, (1.0, 0.1), momentum=0.5), -1.15,
    ),
    "adam, where eps is added": (
        lambda: keras_step(keras.optimizers.Adam, 0.0, ONE, epsilon=1.0), -math.sqrt(0.001) / (math.sqrt(0.001) + 1),
        lambda: our_step(optimizers.Adam, 0.0, ONE, eps=1.0), -0.5,
    ),
    "adam, weight_decay": (
        lambda: keras_step(keras.optimizers.Adam, 1.0, (0.0, 0.1), weight_decay=0.1), 0.99,
        lambda: our_step(optimizers.Adam, 1.0, (0.0, 0.1), weight_decay=0.1), 0.9,
    ),
    "rmsprop, where eps is added": (
        lambda: keras_step(keras.optimizers.RMSprop, 0.0, ONE, rho=0.5, epsilon=1.0), -1 / math.sqrt(1.5),
        lambda: our_step(adaptive.RMSprop, 0.0, ONE, alpha=0.5, eps=1.0), -1 / (math.sqrt(0.5) + 1),
    ),
    "adagrad, where eps is added": (
        lambda: keras_step(keras.optimizers.Adagrad, 0.0, ONE, initial_accumulator_value=0.0, epsilon=1.0),
        -math.sqrt(0.5),
        lambda: our_step(adaptive.Adagrad, 0.0, ONE, eps=1.0), -0.5,
    ),
}  # fmt: skip


def started(layer: Any) -> Sequential:
    """Return a layer of ours with the values that every build begins with."""
    made = Sequential(layer)
    for name, variable in (made.named_parameters() | made.named_buffers()).items():
        variable.assign(tf.ones_like(variable) if name in ("0.weight", "0.running_var") else tf.zeros_like(variable))
    return made


def running_variance(layer: Any) -> float:
    """Return the running variance after a batch of 0 and 2, from 1 on."""
    layer(tf.constant([[0.0], [2.0]]), training=True)
    ours = isinstance(layer, Sequential)
    return float((layer.named_buffers()["0.running_var"] if ours else layer.moving_variance)[0])


def of(layer: Any, *values: float) -> float:
    """Return what a layer makes of some numbers; the last."""
    return float(layer(tf.constant([values]))[0, -1])


def corner(layer: Any, channels: int) -> float:
    """Return the corner of what a layer makes of an image of ones."""
    ones = tf.ones((1, 4, 4, 1) if channels == 3 else (1, 1, 4, 4))
    return float(tf.reshape(layer(ones), [-1])[0])


LAYERS: dict[str, tuple[Numbers, float, Numbers, float]] = {
    "batch_norm, running variance": (
        lambda: running_variance(keras.layers.BatchNormalization(momentum=0.9)), 0.9 * 1 + 0.1 * 1,
        lambda: running_variance(started(normalization.BatchNorm(1))), 0.9 * 1 + 0.1 * 2,
    ),
    "layer_norm, eps": (
        lambda: of(keras.layers.LayerNormalization(), 0.0, 0.002), 0.001 / math.sqrt(1e-6 + 1e-3),
        lambda: of(started(normalization.LayerNorm(2)), 0.0, 0.002), 0.001 / math.sqrt(1e-6 + 1e-5),
    ),
    "leaky_relu, slope": (
        lambda: of(keras.layers.LeakyReLU(), -1.0), -0.3,
        lambda: of(Sequential(activations.LeakyReLU()), -1.0), -0.01,
    ),
    "avg_pool, padding in the mean": (
        lambda: corner(keras.layers.AveragePooling2D(3, 1, padding="same"), 3), 1.0,
        lambda: corner(Sequential(pooling.AvgPool(3, 1, 1)), 1), 4 / 9,
    ),
}  # fmt: skip


def loss(function: Any, first: list[float], second: list[float]) -> float:
    """Return a loss of one row."""
    return float(function(tf.constant([first]), tf.constant([second])))


LOSSES: dict[str, tuple[Numbers, float, Numbers, float]] = {
    "cosine": (
        lambda: loss(keras.losses.CosineSimilarity(), [1.0, 2.0], [1.0, 2.0]), -1.0,
        lambda: loss(losses.cosine_distance, [1.0, 2.0], [1.0, 2.0]), 0.0,
    ),
    "hinge, a target of 0": (
        lambda: loss(keras.losses.Hinge(), [0.0], [0.5]), 1.5,
        lambda: loss(losses.hinge, [0.5], [0.0]), 1.0,
    ),
    "bce, a probability of 0": (
        lambda: loss(keras.losses.BinaryCrossentropy(), [1.0], [0.0]), -math.log(1e-7),
        lambda: loss(losses.bce, [0.0], [1.0]), 100.0,
    ),
    "kl_div, of probabilities or of logits": (
        lambda: loss(keras.losses.KLDivergence(), [0.5, 0.5], [0.25, 0.75]), 0.5 * math.log(4 / 3),
        lambda: loss(losses.kl_div, [math.log(0.25), math.log(0.75)], [0.0, 0.0]), 0.5 * math.log(4 / 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*RULES, *LAYERS, *LOSSES])
def test_keras_means_what_the_table_says_and_we_what_pytorch_means(name: str) -> None:
    theirs, expected_of_theirs, ours, expected_of_ours = (RULES | LAYERS | LOSSES)[name]
    np.testing.assert_allclose(theirs(), expected_of_theirs, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours(), expected_of_ours, rtol=1e-5, atol=1e-6)
