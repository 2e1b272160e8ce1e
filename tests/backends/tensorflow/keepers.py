"""User classes with a state of their own: used by the tests as ``tests.backends.tensorflow.keepers:Name``."""

from __future__ import annotations

import keras
import tensorflow as tf


class Hits:
    """A metric that counts by itself, and tells what it counted."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.hits, self.all = tf.Variable(0.0), tf.Variable(0.0)

    def update(self, prediction, target):
        near = tf.cast(tf.abs(prediction - target) < self.threshold, tf.float32)
        self.hits.assign_add(tf.reduce_sum(near))
        self.all.assign_add(tf.cast(tf.size(near), tf.float32))

    def compute(self):
        return self.hits / tf.maximum(self.all, 1.0)

    def reset(self):
        self.hits.assign(0.0)
        self.all.assign(0.0)

    def state_dict(self):
        return {"hits": self.hits, "all": self.all.numpy()}

    def load_state_dict(self, state):
        self.hits.assign(state["hits"])
        self.all.assign(state["all"])


class Refusing(Hits):
    """It never takes a state."""

    def load_state_dict(self, state):
        raise ValueError("never")


class Silent(Hits):
    """It does not tell."""

    state_dict = None
    load_state_dict = None


class Mean(keras.metrics.Mean):
    """A metric of Keras."""


class Odd(tf.Module):
    """Variables of types that a checkpoint lacks."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.ones((4, 3)))
        self.small = tf.Variable(tf.cast([1.5, 2.5], tf.bfloat16), trainable=False)
        self.turn = tf.Variable(tf.constant([1 + 2j, 3 - 4j], tf.complex64), trainable=False)

    def __call__(self, x):
        return x @ self.weight
