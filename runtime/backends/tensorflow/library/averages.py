"""Writes that follow another model: averages and copies, over lists of variables resolved once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.dtypes import typed


def blend(target: Sequence[tf.Variable], source: Sequence[tf.Variable], decay: Any) -> None:
    """Set every variable of ``target`` to decay * target + (1 - decay) * source, in place."""
    for old, new in zip(target, source, strict=True):
        old.assign(mixed(old, tf.cast(new, old.dtype), 1 - decay))


def mixed(start: tf.Variable, end: tf.Tensor, weight: Any) -> tf.Tensor:
    """Return start + weight * (end - start), from the nearer of the two, as PyTorch computes it.

    The weight is a number, or a tensor in double precision.
    """
    share, rest = (typed(each, start.dtype) for each in (weight, 1 - weight))
    if tf.is_tensor(weight):
        return tf.where(weight < 0.5, start + share * (end - start), end - (end - start) * rest)
    return start + share * (end - start) if weight < 0.5 else end - (end - start) * rest


def blend_buffers(target: Sequence[tf.Variable], source: Sequence[tf.Variable], decay: Any) -> None:
    """Average floating-point buffers like weights; copy the others, whose average would mean nothing."""
    for old, new in zip(target, source, strict=True):
        if old.dtype.is_floating:
            blend([old], [new], decay)
        else:
            copy_into([old], [new])


def copy_into(target: Sequence[tf.Variable], source: Sequence[tf.Variable]) -> None:
    """Copy every variable of ``source`` into its partner in ``target``."""
    for old, new in zip(target, source, strict=True):
        old.assign(tf.cast(new, old.dtype))


def floating(variables: Sequence[tf.Variable]) -> list[tf.Variable]:
    """Return the variables of floating-point numbers."""
    return [each for each in variables if each.dtype.is_floating]


def whole_numbers(variables: Sequence[tf.Variable]) -> list[tf.Variable]:
    """Return the other variables."""
    return [each for each in variables if not each.dtype.is_floating]
