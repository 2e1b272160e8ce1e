"""Comparisons and powers of numbers of any types together, with the gradients of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.dtypes import promoted


def less(a: Any, b: Any) -> tf.Tensor:
    """Return a < b."""
    return tf.less(*promoted(a, b))


def less_equal(a: Any, b: Any) -> tf.Tensor:
    """Return a <= b."""
    return tf.less_equal(*promoted(a, b))


def greater(a: Any, b: Any) -> tf.Tensor:
    """Return a > b."""
    return tf.greater(*promoted(a, b))


def greater_equal(a: Any, b: Any) -> tf.Tensor:
    """Return a >= b."""
    return tf.greater_equal(*promoted(a, b))


def equal(a: Any, b: Any) -> tf.Tensor:
    """Return whether a equals b, element by element."""
    return tf.equal(*promoted(a, b))


def not_equal(a: Any, b: Any) -> tf.Tensor:
    """Return whether a differs from b, element by element."""
    return tf.not_equal(*promoted(a, b))


def minimum(a: Any, b: Any) -> tf.Tensor:
    """Return the lesser of a and b; where they are equal, each gets half of the gradient."""
    return shared(tf.minimum, *promoted(a, b))


def maximum(a: Any, b: Any) -> tf.Tensor:
    """Return the greater of a and b; where they are equal, each gets half of the gradient."""
    return shared(tf.maximum, *promoted(a, b))


def shared(chosen: Callable[[tf.Tensor, tf.Tensor], tf.Tensor], a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Return what is chosen of a and b; where they are equal, their mean, so that they share the gradient."""
    if not a.dtype.is_floating:
        return chosen(a, b)
    return tf.where(tf.equal(a, b), a / 2 + b / 2, chosen(a, b))


def power(x: Any, exponent: Any) -> tf.Tensor:
    """Return x ** exponent; the gradient at 0 ** 0, which is 1, is 0."""
    x, exponent = promoted(x, exponent)
    if not x.dtype.is_floating:
        return tf.cast(tf.pow(tf.cast(x, tf.int64), tf.cast(exponent, tf.int64)), x.dtype)
    is_one = tf.logical_and(tf.equal(x, 0), tf.equal(exponent, 0))
    return tf.pow(tf.where(is_one, tf.ones_like(x), x), exponent)
