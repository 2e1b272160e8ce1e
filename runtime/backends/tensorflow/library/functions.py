"""Calls that TensorFlow lacks in this form: most take any types of numbers together, as PyTorch does."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, TypeAlias

import tensorflow as tf

from runtime.backends.tensorflow.library.dtypes import floated, promoted, typed

Axes: TypeAlias = int | tuple[int, ...] | None
"""One axis, several, or all."""


def add(*operands: Any) -> tf.Tensor:
    """Return a + b + ..."""
    return reduce(lambda a, b: tf.add(*promoted(a, b)), operands)


def sub(a: Any, b: Any) -> tf.Tensor:
    """Return a - b."""
    return tf.subtract(*promoted(a, b))


def mul(*operands: Any) -> tf.Tensor:
    """Return a * b * ..."""
    return reduce(lambda a, b: tf.multiply(*promoted(a, b)), operands)


def div(a: Any, b: Any) -> tf.Tensor:
    """Return a / b; float32 for whole numbers."""
    a, b = promoted(a, b)
    return floated(a) / floated(b)


def matmul(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Return the product of the last two axes; a vector is a row on the left and a column on the right."""
    row, column = a.shape.rank == 1, b.shape.rank == 1
    product = tf.matmul(a[tf.newaxis] if row else a, b[:, tf.newaxis] if column else b)
    gone = [axis for axis, has in ((-2, row), (-1, column)) if has]
    return tf.squeeze(product, gone) if gone else product


def outer(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Return [n, m] with all products of an element of a, [n], and one of b, [m]."""
    return a[:, tf.newaxis] * b


def reduce_sum(x: tf.Tensor, axis: Axes = None, keepdims: bool = False) -> tf.Tensor:
    """Return the sum over axes; whole numbers and truth values add up in int64."""
    return tf.reduce_sum(x if x.dtype.is_floating else tf.cast(x, tf.int64), axis, keepdims)


def sqrt(x: tf.Tensor) -> tf.Tensor:
    """Return the square root; float32 for whole numbers."""
    return tf.sqrt(floated(x))


def exp(x: tf.Tensor) -> tf.Tensor:
    """Return e^x; float32 for whole numbers."""
    return tf.exp(floated(x))


def log(x: tf.Tensor) -> tf.Tensor:
    """Return the natural logarithm; float32 for whole numbers."""
    return tf.math.log(floated(x))


def sigmoid(x: tf.Tensor) -> tf.Tensor:
    """Return 1 / (1 + exp(-x)); float32 for whole numbers."""
    return tf.sigmoid(floated(x))


def tanh(x: tf.Tensor) -> tf.Tensor:
    """Return the hyperbolic tangent; float32 for whole numbers."""
    return tf.tanh(floated(x))


def relu(x: tf.Tensor) -> tf.Tensor:
    """Return max(0, x); where that is 0 so is the gradient, even for an incoming gradient that is not finite.

    ``tf.nn.relu`` alone multiplies there: 0 * inf is NaN. PyTorch selects.
    """
    y = tf.nn.relu(x)
    return tf.math.multiply_no_nan(x, tf.stop_gradient(tf.sign(y))) if x.dtype.is_floating else y


def absolute(x: tf.Tensor) -> tf.Tensor:
    """Return |x|; the gradient at NaN is 0, as in PyTorch."""
    return x * tf.stop_gradient(sign(x)) if x.dtype.is_floating else tf.abs(x)


def sign(x: tf.Tensor) -> tf.Tensor:
    """Return -1, 0 or 1; 0 for NaN, as PyTorch does."""
    return tf.where(tf.math.is_nan(x), tf.zeros_like(x), tf.sign(x)) if x.dtype.is_floating else tf.sign(x)


def clip(x: tf.Tensor, min: float | None = None, max: float | None = None) -> tf.Tensor:
    """Return min(max(x, ``min``), ``max``); the gradient passes at the limits themselves."""
    x = x if min is None else tf.maximum(*promoted(x, min))
    return x if max is None else tf.minimum(*promoted(x, max))


def norm(x: tf.Tensor, axis: Axes = None, keepdims: bool = False) -> tf.Tensor:
    """Return the Euclidean length over axes; its gradient at length 0 is 0."""
    square = tf.reduce_sum(x * x, axis, keepdims)
    is_zero = tf.cast(tf.equal(square, 0), square.dtype)
    return (1.0 - is_zero) * tf.sqrt(square + is_zero)


def normalize(x: tf.Tensor, axis: int = -1) -> tf.Tensor:
    """Return x / max(length, 1e-12), the length along an axis."""
    return x / tf.maximum(norm(x, axis, keepdims=True), tf.constant(1e-12, x.dtype))


def split(x: tf.Tensor, sections: int | tuple[int, ...], axis: int = 1) -> tuple[tf.Tensor, ...]:
    """Return a tensor cut along an axis: into equal parts, or parts of the sizes listed."""
    size = x.shape[axis]
    if isinstance(sections, int) and size is not None and size % sections:
        raise ValueError(f"{size} elements along axis {axis} cannot be cut into {sections} equal parts")
    return tuple(tf.split(x, sections if isinstance(sections, int) else list(sections), axis))


def split_rows(x: tf.Tensor, count: int) -> tuple[tf.Tensor, ...]:
    """Return near-equal parts of the rows, the larger ones first; fail for fewer rows than parts."""
    rows = tf.shape(x)[0]
    message = f"a batch of fewer rows cannot be cut into {count} parts"
    with tf.control_dependencies([tf.debugging.assert_greater_equal(rows, count, message)]):
        sizes = (rows + count - 1 - tf.range(count)) // count
    parts = tf.split(x, sizes, num=count)
    if x.shape.rank is None:
        return tuple(parts)
    known = x.shape[0]
    fixed = [None if known is None else (known + count - 1 - part) // count for part in range(count)]
    return tuple(tf.ensure_shape(part, [size, *x.shape[1:]]) for part, size in zip(parts, fixed, strict=True))


def cut(x: tf.Tensor, start: int = 0, stop: int | None = None, axis: int = 1) -> tf.Tensor:
    """Return the elements from ``start`` up to, not including, ``stop`` along an axis; negative ones from the end."""
    index = [slice(None)] * x.shape.rank
    index[axis] = slice(start, stop)
    return x[tuple(index)]


def take_along(x: tf.Tensor, indices: tf.Tensor, axis: int = 1) -> tf.Tensor:
    """Return, for axis 1, x[i][indices[i][j]] at every [i][j] of the indices."""
    rank = x.shape.rank
    axis = axis % rank
    order = [*(each for each in range(rank) if each != axis), axis]
    back = [order.index(each) for each in range(rank)]
    x, indices = tf.transpose(x, order), tf.transpose(indices, order)
    x = tf.slice(x, [0] * rank, tf.concat((tf.shape(indices)[:-1], tf.shape(x)[-1:]), axis=0))
    return tf.transpose(tf.gather(x, tf.cast(indices, tf.int64), axis=rank - 1, batch_dims=rank - 1), back)


def concat(xs: Sequence[Any], axis: int = 1) -> tf.Tensor:
    """Return tensors joined along an axis."""
    return tf.concat(promoted(*xs), axis)


def stack(xs: Sequence[Any], axis: int = 0) -> tf.Tensor:
    """Return tensors joined along a new axis."""
    return tf.stack(promoted(*xs), axis)


def one_hot(x: tf.Tensor, classes: int, dtype: tf.DType = tf.float32) -> tf.Tensor:
    """Return 1 at the class number, 0 elsewhere, along a new last axis."""
    return tf.one_hot(tf.cast(x, tf.int64), classes, dtype=dtype)


def argmax(x: tf.Tensor, axis: int = 1) -> tf.Tensor:
    """Return the index of the greatest element along an axis, the first of equal ones; int64."""
    return tf.argmax(x if x.dtype != tf.bool else tf.cast(x, tf.int32), axis, output_type=tf.int64)


def where(condition: tf.Tensor, a: Any, b: Any, dtype: tf.DType | None = None) -> tf.Tensor:
    """Return a where the condition holds, else b; ``dtype``: the type of two numbers."""
    first, second = promoted(a, b) if dtype is None else (typed(a, dtype), typed(b, dtype))
    return tf.where(condition, first, second)


def interpolate(a: Any, b: Any, weight: Any) -> tf.Tensor:
    """Return a + weight * (b - a)."""
    a, b, weight = promoted(a, b, weight)
    return a + weight * (b - a)
