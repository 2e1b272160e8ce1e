"""Micro-batches: the near-equal parts of a batch, and which share of its rows each has."""

from __future__ import annotations

import tensorflow as tf


def parts(x: tf.Tensor, count: int, axis: int = 0) -> tuple[tf.Tensor, ...]:
    """Return near-equal parts along the axis of the batch, the larger ones first; their sizes follow those of x."""
    split = tf.split(x, part_sizes(tf.shape(x)[axis], count), axis, num=count)
    if x.shape.rank is None:
        return tuple(split)
    sizes = x.shape.as_list()
    rows = sizes[axis]
    sizes[axis] = None if rows is None or rows % count else rows // count
    return tuple(tf.ensure_shape(each, sizes) for each in split)


def row_shares(x: tf.Tensor, count: int, axis: int = 0) -> tuple[tf.Tensor, ...]:
    """Return the share of the rows that each part has; fail for fewer rows than parts."""
    rows = tf.shape(x)[axis]
    message = f"a batch cannot be split into {count} micro-batches if it has fewer rows"
    with tf.control_dependencies([tf.debugging.assert_greater_equal(rows, count, message)]):
        sizes = tf.cast(part_sizes(rows, count), tf.float64) / tf.cast(rows, tf.float64)
    return tuple(tf.unstack(sizes, count))


def part_sizes(rows: tf.Tensor, count: int) -> tf.Tensor:
    """Return how many rows every part has."""
    return (rows + count - 1 - tf.range(count)) // count


def weigh(value: tf.Tensor, share: tf.Tensor) -> tf.Tensor:
    """Return what a part adds to a mean over the batch."""
    return value * tf.cast(share, value.dtype)
