"""Calls that order, add or resample elements along axes, with the values and gradients of PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.dtypes import typed
from runtime.backends.tensorflow.library.functions import take_along


def expand(x: tf.Tensor, shape: int | Sequence[Any]) -> tf.Tensor:
    """Return x with axes of size 1 repeated: a size for every axis, of which -1 keeps what there is."""
    sizes = [shape] if isinstance(shape, int) else shape
    kept = tf.shape(x)
    # The size of the batch is a tensor.
    stays = [isinstance(size, int) and size == -1 for size in sizes]
    return tf.broadcast_to(x, [kept[axis] if stays[axis] else size for axis, size in enumerate(sizes)])


def cumsum(x: tf.Tensor, axis: int = -1) -> tf.Tensor:
    """Return the sum of all elements up to each along an axis; whole numbers and truth values add up in int64."""
    return tf.cumsum(x if x.dtype.is_floating else tf.cast(x, tf.int64), axis)


def sort(x: tf.Tensor, axis: int = -1, descending: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the elements in order along an axis, and the indices that they had; equal ones keep their order."""
    order = tf.argsort(x, axis, "DESCENDING" if descending else "ASCENDING", stable=True)
    return take_along(x, order, axis), tf.cast(order, tf.int64)


def topk(x: tf.Tensor, k: int, axis: int = -1, largest: bool = True) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the k greatest elements along an axis, or the least, in order, and their indices; the first of equal ones.

    Raises InvalidArgumentError where there are fewer.
    """
    order = tf.argsort(x, axis, "DESCENDING" if largest else "ASCENDING", stable=True)
    first = tf.gather(order, tf.range(k), axis=axis)
    return take_along(x, first, axis), tf.cast(first, tf.int64)


def pad(x: tf.Tensor, pad: Sequence[int], method: str = "constant", value: Any = 0.0) -> tf.Tensor:
    """Return x with elements before and after it, given in pairs from the last axis on: a number, a mirror, an edge."""
    pairs = [(0, 0)] * (x.shape.rank - len(pad) // 2) + [tuple(pad[at : at + 2]) for at in range(len(pad) - 2, -1, -2)]
    if method == "constant":
        return tf.pad(x, pairs, constant_values=typed(value, x.dtype))
    for axis, (before, after) in (each for each in enumerate(pairs) if any(each[1])):
        last, places = tf.shape(x)[axis] - 1, tf.range(-before, tf.shape(x)[axis] + after)
        if method == "reflect":
            places = last - tf.abs(last - tf.abs(places))
        x = tf.gather(x, tf.clip_by_value(places, 0, last), axis=axis)
    return x


def resize(
    x: tf.Tensor, size: int | tuple[int, int] | None = None, factor: int = 1, method: str = "nearest"
) -> tf.Tensor:
    """Return images, channels first, of a height and width, or with both times a factor; corners are not aligned."""
    wanted = (size, size) if isinstance(size, int) else size
    for axis in (2, 3):
        old = tf.shape(x)[axis]
        new = old * factor if wanted is None else tf.constant(wanted[axis - 2])
        x = nearest(x, old, new, axis) if method == "nearest" else interpolated(x, old, new, axis)
    return x


def nearest(x: tf.Tensor, old: tf.Tensor, new: tf.Tensor, axis: int) -> tf.Tensor:
    """Return an axis with another size, of which each element is one of the old: the one at its place, rounded down.

    The place is computed in float32, as PyTorch does.
    """
    places = tf.cast(tf.range(new), tf.float32) * (tf.cast(old, tf.float32) / tf.cast(new, tf.float32))
    return tf.gather(x, tf.minimum(tf.cast(tf.floor(places), tf.int32), old - 1), axis=axis)


def interpolated(x: tf.Tensor, old: tf.Tensor, new: tf.Tensor, axis: int) -> tf.Tensor:
    """Return an axis with another size, of which each element is interpolated between two old ones."""
    wide = tf.float32 if x.dtype in (tf.float16, tf.bfloat16) else x.dtype
    centres = (tf.cast(tf.range(new), wide) + 0.5) * (tf.cast(old, wide) / tf.cast(new, wide)) - 0.5
    places = tf.maximum(centres, 0.0)
    low = tf.cast(tf.floor(places), tf.int32)
    share = tf.reshape(places - tf.cast(low, wide), [-1 if each == axis else 1 for each in range(4)])
    before, after = (tf.cast(tf.gather(x, tf.minimum(at, old - 1), axis=axis), wide) for at in (low, low + 1))
    return tf.cast(before * (1.0 - share) + after * share, x.dtype)
