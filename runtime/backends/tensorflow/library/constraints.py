"""Constraints: what parameters are made to satisfy right after they were stepped, in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.dtypes import typed


def clip_weights(parameters: Sequence[tf.Variable], low: Any, high: Any) -> None:
    """Keep every element between ``low`` and ``high``; where these cross, all are ``high``."""
    for parameter in parameters:
        least, most = (typed(each, parameter.dtype) for each in (low, high))
        parameter.assign(tf.minimum(tf.maximum(parameter, least), most))


def make_non_negative(parameters: Sequence[tf.Variable]) -> None:
    """Make elements below 0 to 0."""
    for parameter in parameters:
        parameter.assign(tf.nn.relu(parameter))


def make_unit_norm(parameters: Sequence[tf.Variable], axis: tuple[int, ...] | None = None) -> None:
    """Divide by the norm over axes, all but the first by default; what is 0 stays 0."""
    for parameter in parameters:
        norm = unit_norms(parameter, axis)
        parameter.assign(parameter / tf.where(norm > 0, norm, tf.ones_like(norm)))


def limit_norm(parameters: Sequence[tf.Variable], norm: Any, axis: tuple[int, ...] | None = None) -> None:
    """Shorten to a norm over axes, all but the first by default, what is longer."""
    for parameter in parameters:
        found = unit_norms(parameter, axis)
        most = typed(norm, found.dtype)
        parameter.assign(parameter * tf.where(found > most, most / found, tf.ones_like(found)))


def unit_norms(parameter: tf.Variable, axis: tuple[int, ...] | None) -> tf.Tensor:
    """Return the Euclidean norms over axes: by default those of the units, one per place of the first axis."""
    rank = parameter.shape.rank
    over = tuple(range(rank > 1, rank)) if axis is None else axis
    return tf.sqrt(tf.reduce_sum(parameter * parameter, axis=over or None, keepdims=True))


def project_onto(parameters: Sequence[tf.Variable], function: Callable[[tf.Tensor], Any]) -> None:
    """Replace every parameter by what a function makes of it; raise ValueError where that has another shape."""
    for parameter in parameters:
        made = tf.convert_to_tensor(function(tf.convert_to_tensor(parameter)))
        if not made.shape.is_compatible_with(parameter.shape):
            raise ValueError(f"the constraint made {made.shape} of {parameter.shape}")
        parameter.assign(made)
