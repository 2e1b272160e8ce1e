"""Averages whose numbers are those of a narrower type: rounded after each write, to the nearest or at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

DIGITS: Mapping[tf.DType, tuple[int, int]] = {
    tf.float32: (23, -126),
    tf.bfloat16: (7, -119),
    tf.float16: (10, -14),
}
"""The binary digits after the point, and the exponent below which numbers come no closer (of bfloat16 as float32 can
hold half of a step)."""


def round_to(variables: Sequence[tf.Variable], dtype: tf.DType) -> None:
    """Make every number the nearest one of a type."""
    for each in variables:
        each.assign(tf.cast(tf.cast(each, dtype), each.dtype))


def round_at_random(variables: Sequence[tf.Variable], dtype: tf.DType, random: Any, op: str) -> None:
    """Make every number one of its two neighbours of a type, the nearer the likelier: it stays the same in the mean."""
    digits, least = DIGITS[dtype]
    for index, each in enumerate(variables):
        if each.dtype == dtype:
            continue
        step = power_of_two(tf.maximum(exponents(each.read_value()), least) - digits, each.dtype)
        drawn = random.uniform(f"{op}.{index}", each.shape)
        each.assign(tf.cast(tf.cast(tf.floor(each / step + drawn) * step, dtype), each.dtype))


def exponents(x: Any) -> Any:
    """Return the exponent of every number, from its bits."""
    if x.dtype == tf.float64:
        high = tf.bitwise.right_shift(tf.bitcast(x, tf.int64), tf.constant(52, tf.int64))
        return tf.cast(tf.bitwise.bitwise_and(high, tf.constant(0x7FF, tf.int64)), tf.int32) - 1023
    return tf.bitwise.bitwise_and(tf.bitwise.right_shift(tf.bitcast(x, tf.int32), 23), 0xFF) - 127


def power_of_two(exponent: Any, dtype: tf.DType) -> Any:
    """Return 2 to a power exactly, from its bits."""
    if dtype == tf.float64:
        return tf.bitcast(tf.bitwise.left_shift(tf.cast(exponent + 1023, tf.int64), tf.constant(52, tf.int64)), dtype)
    return tf.bitcast(tf.bitwise.left_shift(exponent + 127, 23), dtype)
