"""Layers that normalize; every derivative of them is right, the second as well."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.convolutions import ConvTranspose2d
from runtime.backends.tensorflow.library.functions import normalize
from runtime.backends.tensorflow.library.layers import Layer, Stack, turned


def moments(x: tf.Tensor, axes: Sequence[int]) -> tuple[tf.Tensor, tf.Tensor]:
    """Return mean and biased variance over axes, which are kept with size 1.

    ``tf.nn.moments`` takes the mean inside the variance for a constant: its second derivatives are wrong.
    """
    mean = tf.reduce_mean(x, axes, keepdims=True)
    return mean, variance(x, mean, axes)


def variance(x: tf.Tensor, mean: tf.Tensor, axes: Sequence[int]) -> tf.Tensor:
    """Return the mean square of what x deviates from its mean.

    For any constant c, it is mean((x - c)^2) - (mean - c)^2. With c the value of the mean, the second term is zero and
    so is its slope, which takes no work of the size of x; its own slope is what a second derivative needs.
    """
    constant = tf.stop_gradient(mean)
    around = tf.reduce_mean(tf.math.squared_difference(x, constant), axes, keepdims=True)
    return around - tf.square(mean - constant)


class Normalization(Layer):
    """What layers with a scale and an offset share."""

    def __init__(self, features: int, eps: float, affine: bool) -> None:
        super().__init__()
        self.features, self.eps, self.affine = features, eps, affine

    def make(self, path: str, dtype: tf.DType) -> None:
        """Make weight and bias."""
        if self.affine:
            self.weight = self.add(path, "weight", (self.features,), dtype)
            self.bias = self.add(path, "bias", (self.features,), dtype)

    def scaled(self, x: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, shape: Sequence[int]) -> tf.Tensor:
        """Return (x - mean) / sqrt(variance + eps) times weight plus bias, which are broadcast in a shape."""
        scale = tf.math.rsqrt(variance + self.eps)
        if not self.affine:
            return x * scale - mean * scale
        scale = scale * tf.reshape(self.weight, shape)
        return x * scale + (tf.reshape(self.bias, shape) - mean * scale)


class BatchNorm(Normalization):
    """Batch normalization of axis 1 over all others (Ioffe and Szegedy 2015)."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True) -> None:
        super().__init__(num_features, eps, affine)
        self.momentum = momentum

    def make(self, path: str, dtype: tf.DType) -> None:
        """Make weight and bias, the running statistics, and the number of batches they have seen."""
        super().make(path, dtype)
        self.running_mean = self.add(path, "running_mean", (self.features,), dtype, trainable=False)
        self.running_var = self.add(path, "running_var", (self.features,), dtype, trainable=False)
        self.num_batches_tracked = self.add(path, "num_batches_tracked", (), tf.int64, trainable=False)

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Normalize by the statistics of the batch while training, which the running ones follow; else by those."""
        rank = x.shape.rank
        channels = rank - 1 if last else 1
        shape = [self.features if axis == channels else 1 for axis in range(rank)]
        if not training:
            return self.scaled(x, tf.reshape(self.running_mean, shape), tf.reshape(self.running_var, shape), shape)
        mean, variance = moments(x, [axis for axis in range(rank) if axis != channels])
        self.follow(mean, variance, tf.size(x) // self.features)
        return self.scaled(x, mean, variance, shape)

    def follow(self, mean: tf.Tensor, variance: tf.Tensor, count: tf.Tensor) -> None:
        """Move the running statistics towards those of a batch, the variance taken without bias."""
        message = "batch_norm needs more than one value per channel in training"
        tf.debugging.assert_greater(count, 1, message)
        count, keep = tf.cast(count, mean.dtype), 1 - self.momentum
        mean, variance = (tf.stop_gradient(tf.reshape(each, [-1])) for each in (mean, variance))
        self.running_mean.assign(self.running_mean * keep + mean * self.momentum)
        self.running_var.assign(self.running_var * keep + variance * (count / (count - 1)) * self.momentum)
        self.num_batches_tracked.assign_add(1)


class InstanceNorm(Normalization):
    """Normalization of every channel of every sample over all axes after it (Ulyanov et al. 2016)."""

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = False) -> None:
        super().__init__(num_features, eps, affine)

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Normalize every channel of every sample."""
        rank = x.shape.rank
        channels = rank - 1 if last else 1
        mean, variance = moments(x, [axis for axis in range(1, rank) if axis != channels])
        shape = [self.features if axis == channels else 1 for axis in range(rank)]
        return self.scaled(x, mean, variance, shape)


class RMSNorm(Layer):
    """Division of the last axis by its root mean square (Zhang and Sennrich 2019)."""

    layout = "first"

    def __init__(self, normalized_shape: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.features, self.eps = normalized_shape, eps

    def make(self, path: str, dtype: tf.DType) -> None:
        """Make the weight."""
        self.weight = self.add(path, "weight", (self.features,), dtype)

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return x / sqrt(mean(x^2) + eps) times the weight."""
        return x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + self.eps) * self.weight


class SpectralNorm(Stack):
    """A layer whose weight is divided by its largest singular value, which it estimates (Miyato et al. 2018).

    The weight is a matrix with a row per output. ``u`` is the estimate of its first left singular vector: every call
    makes one step of power iteration from it, in training the last one is kept.
    """

    def __init__(self, layer: Any) -> None:
        super().__init__(layer)
        self.layer = layer

    def make(self, path: str, dtype: tf.DType) -> None:
        """Make the variables of the layer, and the estimate."""
        super().make(path, dtype)
        rows: Any = self.matrix().shape[0]
        self.u = self.add(path, "u", (rows,), dtype, trainable=False)

    def named(self, path: str) -> Iterator[tuple[str, tf.Variable]]:
        """Yield the variables of the layer with their names, and the estimate."""
        yield from super().named(path)
        yield f"{path}.u", self.u

    def matrix(self) -> tf.Tensor:
        """Return the weight with a row per output."""
        weight = tf.convert_to_tensor(self.layer.weight)
        if isinstance(self.layer, ConvTranspose2d):
            weight = tf.transpose(weight, (1, 0, 2, 3))
        return tf.reshape(weight, (weight.shape[0], -1))

    def run(self, x: tf.Tensor, training: bool, last: bool) -> tuple[tf.Tensor, bool]:
        """Return what the layer makes of x with the weight divided; gradients pass through the weight alone."""
        matrix = self.matrix()
        held = tf.stop_gradient(matrix)
        v = normalize(tf.linalg.matvec(held, self.u, transpose_a=True))
        u = normalize(tf.linalg.matvec(held, v))
        if training:
            self.u.assign(u)
        divided = copy.copy(self.layer)
        vars(divided)["weight"] = self.layer.weight / tf.tensordot(u, tf.linalg.matvec(matrix, v), 1)
        y, last = divided.run(x, training, last)
        return (y, last) if self.seen is None else (self.seen(turned(y, last, False)), False)


class LayerNorm(Normalization):
    """Layer normalization of the last axis (Ba et al. 2016)."""

    layout = "first"

    def __init__(self, normalized_shape: int, eps: float = 1e-5) -> None:
        super().__init__(normalized_shape, eps, True)

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Normalize the last axis."""
        mean, variance = moments(x, [-1])
        return self.scaled(x, mean, variance, [-1])


class GroupNorm(Normalization):
    """Normalization of groups of axis 1, each with all axes after it (Wu and He 2018)."""

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5) -> None:
        super().__init__(num_channels, eps, True)
        self.groups = num_groups

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Normalize every group of every sample."""
        split, sizes = (self.groups, self.features // self.groups), tf.unstack(tf.shape(x), x.shape.rank)
        sizes = [*sizes[:-1], *split] if last else [sizes[0], *split, *sizes[2:]]
        channel = len(sizes) - 2 if last else 1  # the axis of the groups
        grouped = tf.reshape(x, tf.stack(sizes))
        mean, variance = moments(grouped, [axis for axis in range(1, len(sizes)) if axis != channel])
        shape = [1] * channel + [*split] + [1] * (len(sizes) - channel - 2)
        return tf.reshape(self.scaled(grouped, mean, variance, shape), tf.shape(x))
