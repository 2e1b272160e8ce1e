"""What own-code.yaml names on TensorFlow: the same as in code_for_torch.py, under the same names of parameters."""

from __future__ import annotations

import keras
import tensorflow as tf


class Linear(keras.layers.Layer):
    """A linear layer with PyTorch's layout."""

    def __init__(self, width: int, weight: tf.Variable | None = None, bias: bool = True) -> None:
        super().__init__()
        self.weight = self.add_weight(shape=(width, width), initializer="zeros") if weight is None else weight
        self.bias = self.add_weight(shape=(width,), initializer="zeros") if bias else None

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Return W x + b."""
        found = tf.matmul(x, self.weight, transpose_b=True)
        return found if self.bias is None else found + self.bias


class Net(keras.Model):
    """Two results of a hidden layer, which has a method of its own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = Linear(width), Linear(width)

    def encode(self, x: tf.Tensor) -> tf.Tensor:
        """Return the hidden layer."""
        return tf.tanh(self.first(x))

    def call(self, x: tf.Tensor, scale: float = 1.0) -> tuple[tf.Tensor, tf.Tensor]:
        """Return two results."""
        hidden = self.encode(x)
        return self.second(hidden) * scale, tf.exp(hidden)


class Tied(keras.Model):
    """Two layers with one weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = Linear(width, bias=False)
        self.second = Linear(width, self.first.weight)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Return x seen twice."""
        return self.second(tf.tanh(self.first(x)))


class Idler(keras.Model):
    """A layer beside a parameter that it does not use."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.spare = Linear(width), self.add_weight(shape=(width,), initializer="zeros")

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Return what the layer makes of x."""
        return tf.tanh(self.first(x))


class Descent(keras.optimizers.Optimizer):
    """Plain descent."""

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable, learning_rate: tf.Tensor) -> None:
        """Write one parameter."""
        variable.assign_sub(tf.cast(learning_rate, variable.dtype) * gradient)


def bend(x: tf.Tensor, strength: float) -> tf.Tensor:
    """Return x / sqrt(1 + strength x^2)."""
    return x * tf.math.rsqrt(1 + strength * tf.square(x))


def gap(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Return the mean of log(1 + (x - y)^2)."""
    return tf.reduce_mean(tf.math.log1p(tf.square(x - y)))


def halve(gradients: tuple[tf.Tensor, ...]) -> tuple[tf.Tensor, ...]:
    """Return gradients half as long."""
    return tuple(0.5 * gradient for gradient in gradients)


def size(x: tf.Tensor, power: float) -> tf.Tensor:
    """Return the mean of a power of the length of rows."""
    return tf.reduce_mean(tf.norm(x, axis=1) ** power)


class Shared(tf.Module):
    """A linear layer whose weight may be another's."""

    def __init__(self, weight: tf.Variable | None = None) -> None:
        super().__init__()
        self.weight = tf.Variable(tf.zeros((4, 4), tf.float64)) if weight is None else weight
        self.bias = tf.Variable(tf.zeros((4,), tf.float64))

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return tf.matmul(x, self.weight, transpose_b=True) + self.bias


def make_tied() -> dict[str, Shared]:
    """Return two layers that share a weight."""
    reader = Shared()
    return {"reader": reader, "writer": Shared(reader.weight)}


def quartic(w: tf.Tensor) -> tf.Tensor:
    """Return a twentieth of the sum of fourth powers."""
    return 0.05 * tf.reduce_sum(w**4)
