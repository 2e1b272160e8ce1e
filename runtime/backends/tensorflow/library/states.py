"""States: variables that outlive the step and that no optimizer trains."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from runtime.backends.tensorflow.library.dtypes import typed
from runtime.backends.tensorflow.library.threefry import derive_key, portable_numbers


def initial_state(seed: int, name: str, shape: Sequence[int], kind: str, bound: float, dtype: tf.DType) -> tf.Variable:
    """Return a state before the first step, drawn under a key of (seed, state): the same on every framework.

    ``kind`` is zeros, ones, constant (= bound), uniform (within +-bound), normal (standard deviation = bound) or
    unit_normal (normal numbers, rows along the last axis scaled to the length ``bound``).
    """
    constants = {"zeros": 0.0, "ones": 1.0, "constant": bound}
    if kind in constants:
        return tf.Variable(tf.fill(shape, typed(constants[kind], dtype)), trainable=False)
    drawn = "uniform" if kind == "uniform" else "normal"
    numbers = tf.reshape(portable_numbers(derive_key(seed, "state", name), math.prod(shape), drawn), shape)
    if kind == "uniform":
        numbers = numbers * 2.0 - 1.0
    if kind == "unit_normal":
        squares = tf.zeros(shape[:-1], tf.float64)
        for column in tf.unstack(numbers, axis=-1):  # one after another: the order of a sum shows in its last bits
            squares = squares + column * column
        numbers = numbers / tf.expand_dims(tf.sqrt(squares), -1)
    return tf.Variable(tf.cast(numbers * bound, dtype), trainable=False)


def write_state(state: tf.Variable, value: tf.Tensor) -> None:
    """Make a state what a value is; raise ValueError for one of another shape or type."""
    is_same = value.shape.is_compatible_with(state.shape) and value.dtype == state.dtype
    if not is_same:
        found, expected = (f"{each.dtype.name} {each.shape}" for each in (value, state))
        raise ValueError(f"a state stays what it is: found {found}, expected {expected}")
    state.assign(tf.ensure_shape(value, state.shape))


def fill_state(state: tf.Variable, number: float) -> None:
    """Make a state a number everywhere."""
    state.assign(tf.fill(state.shape, typed(number, state.dtype)))
