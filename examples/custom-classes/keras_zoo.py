"""The models and the loss of zoo.py, written for TensorFlow: what custom.yaml names as `keras_zoo:...`."""

from __future__ import annotations

import keras
import tensorflow as tf
from keras.layers import Dense, Flatten, Reshape


class Encoder(keras.Model):
    """Map an image [n, 1, 8, 8] to the mean and the logarithm of the variance of its code, both [n, size]."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.body = keras.Sequential([Flatten(), Dense(128, activation="relu")])
        self.mean = Dense(size)
        self.log_variance = Dense(size)

    def call(self, image: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return mean and log-variance."""
        hidden = self.body(image)
        return self.mean(hidden), self.log_variance(hidden)


class Decoder(keras.Model):
    """Map a code [n, size] to an image [n, 1, 8, 8] with values from -1 to 1."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.body = keras.Sequential([Dense(128, activation="relu"), Dense(64, activation="tanh"), Reshape((1, 8, 8))])

    def call(self, code: tf.Tensor) -> tf.Tensor:
        """Return the image."""
        return self.body(code)


def kl_to_unit_normal(mean: tf.Tensor, log_variance: tf.Tensor) -> tf.Tensor:
    """Return KL(N(mean, variance) || N(0, 1)), summed over the code, mean over the batch (Kingma and Welling 2013)."""
    each = tf.square(mean) + tf.exp(log_variance) - log_variance - 1
    return 0.5 * tf.reduce_mean(tf.reduce_sum(each, axis=1))
