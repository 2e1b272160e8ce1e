"""Layers that act on every element alone (softmax: along one axis)."""

from __future__ import annotations

import tensorflow as tf

from runtime.backends.tensorflow.library.functions import relu
from runtime.backends.tensorflow.library.layers import Layer


class ReLU(Layer):
    """max(0, x)."""

    exact = False

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return max(0, x)."""
        return relu(x)


class LeakyReLU(Layer):
    """x where it is positive, else slope x."""

    exact = False

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self.slope = negative_slope

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return x or slope x."""
        if x.dtype == tf.float64:  # TensorFlow's own operator keeps the slope in float32
            return tf.where(x > 0, x, self.slope * x)
        return tf.nn.leaky_relu(x, self.slope)


class GELU(Layer):
    """x times the normal distribution function (Hendrycks and Gimpel 2016), not the approximation by tanh."""

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return x times the share of a normal distribution below x."""
        return 0.5 * x * (1.0 + tf.math.erf(x * 0.5**0.5))


class SiLU(Layer):
    """x sigmoid(x)."""

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return x sigmoid(x)."""
        return x * tf.sigmoid(x)


class ELU(Layer):
    """x where it is positive, else alpha (exp(x) - 1)."""

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = alpha

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return x or alpha (exp(x) - 1)."""
        return tf.where(x > 0, x, self.alpha * tf.math.expm1(tf.minimum(x, 0.0)))


class Tanh(Layer):
    """The hyperbolic tangent."""

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return tanh(x)."""
        return tf.tanh(x)


class Sigmoid(Layer):
    """1 / (1 + exp(-x))."""

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return 1 / (1 + exp(-x))."""
        return tf.sigmoid(x)


class Softmax(Layer):
    """exp(x) divided by its sum along an axis."""

    layout = "first"

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return exp(x) / sum of exp(x)."""
        return tf.nn.softmax(x, axis=self.dim)
