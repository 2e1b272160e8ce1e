"""Layers that change the resolution of images: pooling and upsampling."""

from __future__ import annotations

import tensorflow as tf

from runtime.backends.tensorflow.library.convolutions import Pair, padded, pair
from runtime.backends.tensorflow.library.layers import Layer


class Pool(Layer):
    """What both kinds of pooling share: their windows."""

    layout = "last"

    def __init__(self, kernel_size: Pair, stride: Pair | None = None, padding: Pair = 0) -> None:
        super().__init__()
        self.kernel, self.padding = pair(kernel_size), pair(padding)
        self.stride = self.kernel if stride is None else pair(stride)


class AvgPool(Pool):
    """The mean of each window; the zeros of the padding count."""

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return the means, channels last."""
        return tf.nn.avg_pool2d(padded(x, self.padding), self.kernel, self.stride, "VALID")


class MaxPool(Pool):
    """The greatest element of each window; padding is never it."""

    exact = False

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return the greatest elements, channels last."""
        return tf.nn.max_pool2d(padded(x, self.padding, x.dtype.min), self.kernel, self.stride, "VALID")


class GlobalAvgPool(Layer):
    """The mean over height and width."""

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return [batch, channels] of an image."""
        return tf.reduce_mean(x, (1, 2) if last else (2, 3))


class Upsample(Layer):
    """Height and width times a whole factor, by repeating pixels or by bilinear interpolation."""

    layout = "last"

    def __init__(self, scale_factor: int, mode: str = "nearest") -> None:
        super().__init__()
        self.factor, self.mode = scale_factor, mode

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return the larger image, channels last."""
        for axis in (1, 2):
            x = tf.repeat(x, self.factor, axis) if self.mode == "nearest" else stretched(x, self.factor, axis)
        return x


def stretched(x: tf.Tensor, factor: int, axis: int) -> tf.Tensor:
    """Return an image with an axis stretched by linear interpolation between the centres of pixels.

    ``tf.image.resize`` would give float32 for any dtype.
    """
    size = tf.shape(x)[axis]
    before = tf.gather(x, tf.maximum(tf.range(size) - 1, 0), axis=axis)
    after = tf.gather(x, tf.minimum(tf.range(size) + 1, size - 1), axis=axis)
    phases = []
    for phase in range(factor):
        offset = (phase + 0.5) / factor - 0.5  # of the new pixel's centre from that of the old one
        other = before if offset < 0 else after
        phases.append(x * (1 - abs(offset)) + other * abs(offset))
    shape = tf.unstack(tf.shape(x), 4)
    shape[axis] = size * factor
    return tf.reshape(tf.stack(phases, axis=axis + 1), tf.stack(shape))
