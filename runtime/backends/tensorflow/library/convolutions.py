"""Convolutions; weights have PyTorch's shapes, and images are channels last inside."""

from __future__ import annotations

from typing import Any, TypeAlias

import tensorflow as tf

from runtime.backends.tensorflow.library.dtypes import typed
from runtime.backends.tensorflow.library.layers import Layer

Pair: TypeAlias = int | tuple[int, int]
"""Height and width; one number for both."""


def pair(value: Pair) -> tuple[int, int]:
    """Return height and width."""
    return (value, value) if isinstance(value, int) else value


def padded(x: tf.Tensor, padding: tuple[int, int], value: float = 0.0) -> tf.Tensor:
    """Return an image, channels last, with so many rows and columns of a value on either side."""
    if padding == (0, 0):
        return x
    return tf.pad(x, ((0, 0), padding[:1] * 2, padding[1:] * 2, (0, 0)), constant_values=typed(value, x.dtype))


def dilated(kernel: tf.Tensor, dilation: tuple[int, int]) -> tf.Tensor:
    """Return a kernel [height, width, in, out] with zeros between its elements.

    TensorFlow has no gradient of a dilated convolution on the CPU; of this one it has.
    """
    if dilation == (1, 1):
        return kernel
    sizes: Any = kernel.shape
    height, width, *planes = sizes
    (down, right), spread = dilation, tf.reshape(kernel, (height, 1, width, 1, *planes))
    spread = tf.pad(spread, ((0, 0), (0, down - 1), (0, 0), (0, right - 1), (0, 0), (0, 0)))
    spread = tf.reshape(spread, (height * down, width * right, *planes))
    return spread[: (height - 1) * down + 1, : (width - 1) * right + 1]


class Conv2d(Layer):
    """A convolution of images [batch, channels, height, width]."""

    layout = "last"
    exact = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.shape = (out_channels, in_channels // groups, *pair(kernel_size))
        self.stride, self.padding, self.dilation = pair(stride), pair(padding), pair(dilation)
        self.groups, self.has_bias = groups, bias

    def make(self, path: str, dtype: tf.DType) -> None:
        """Make weight [out, in / groups, height, width] and bias."""
        self.weight = self.add(path, "weight", self.shape, dtype)
        if self.has_bias:
            self.bias = self.add(path, "bias", self.shape[:1], dtype)

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return the convolution of an image, channels last."""
        kernel = dilated(tf.transpose(self.operand(self.weight), (2, 3, 1, 0)), self.dilation)
        y = self.convolve(padded(self.operand(x), self.padding), kernel)
        return tf.nn.bias_add(y, self.operand(self.bias)) if self.has_bias else y

    def convolve(self, x: tf.Tensor, kernel: tf.Tensor) -> tf.Tensor:
        """Return the convolution in groups, of which TensorFlow has no gradient on the CPU: one by one."""
        if self.groups == 1:
            return tf.nn.conv2d(x, kernel, self.stride, "VALID")
        out, planes = self.shape[:2]
        if planes == 1 and self.stride[0] == self.stride[1]:
            kernel = tf.reshape(kernel, (*kernel.shape[:2], self.groups, out // self.groups))
            return tf.nn.depthwise_conv2d(x, kernel, (1, *self.stride, 1), "VALID")
        parts = zip(tf.split(x, self.groups, axis=3), tf.split(kernel, self.groups, axis=3), strict=True)
        return tf.concat([tf.nn.conv2d(part, each, self.stride, "VALID") for part, each in parts], axis=3)


class Conv1d(Conv2d):
    """A convolution of sequences [batch, channels, length]: of images with one row."""

    layout = "first"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        window = (1, kernel_size), stride, (0, padding), (1, dilation)
        super().__init__(in_channels, out_channels, *window, groups, bias)

    def make(self, path: str, dtype: tf.DType) -> None:
        """Make weight [out, in / groups, length] and bias."""
        out, planes, _, length = self.shape
        self.weight = self.add(path, "weight", (out, planes, length), dtype)
        if self.has_bias:
            self.bias = self.add(path, "bias", (out,), dtype)

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return the convolution of a sequence, channels first."""
        kernel = tf.transpose(self.operand(self.weight), (2, 1, 0))[tf.newaxis]
        image = padded(self.operand(tf.transpose(x, (0, 2, 1))[:, tf.newaxis]), self.padding)
        y = self.convolve(image, dilated(kernel, self.dilation))
        y = tf.nn.bias_add(y, self.operand(self.bias)) if self.has_bias else y
        return tf.transpose(y[:, 0], (0, 2, 1))


class ConvTranspose2d(Layer):
    """The transpose of a convolution, which makes images larger."""

    layout = "last"
    exact = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        output_padding: Pair = 0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.shape = (in_channels, out_channels, *pair(kernel_size))
        self.stride, self.padding, self.extra, self.has_bias = pair(stride), pair(padding), pair(output_padding), bias

    def make(self, path: str, dtype: tf.DType) -> None:
        """Make weight [in, out, height, width] and bias."""
        self.weight = self.add(path, "weight", self.shape, dtype)
        if self.has_bias:
            self.bias = self.add(path, "bias", self.shape[1:2], dtype)

    def call(self, x: tf.Tensor, training: bool, last: bool) -> tf.Tensor:
        """Return the transposed convolution of an image, channels last: whole, then without the padding."""
        out, (top, left) = self.shape[1], self.padding
        sizes = [self.whole_size(x, axis) for axis in (0, 1)]
        x, kernel = self.operand(x), tf.transpose(self.operand(self.weight), (2, 3, 1, 0))
        y = tf.nn.conv2d_transpose(x, kernel, tf.stack((tf.shape(x)[0], *sizes, out)), self.stride, "VALID")
        y = y[:, top : sizes[0] - top, left : sizes[1] - left]
        return tf.nn.bias_add(y, self.operand(self.bias)) if self.has_bias else y

    def whole_size(self, x: tf.Tensor, axis: int) -> tf.Tensor | int:
        """Return height (axis 0) or width of the result with its padding; where it is known, as a number."""
        size = x.shape[1 + axis]
        size = tf.shape(x)[1 + axis] if size is None else size
        return (size - 1) * self.stride[axis] + self.shape[2 + axis] + self.extra[axis]
