"""Transforms of gradient sets beyond clipping by one number: by unit, per parameter, projections, noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.dtypes import typed
from runtime.backends.tensorflow.library.functions import norm
from runtime.backends.tensorflow.library.gradients import GradientSet


def clip_each(gradients: GradientSet, norm: float, eps: float = 0.0) -> tuple[tf.Tensor, ...]:
    """Return every gradient times min(1, norm / (||g|| + eps)), the norm taken over that one gradient."""
    lengths = [tf.sqrt(tf.reduce_sum(each * each)) for each in gradients]
    factors = (tf.minimum(typed(norm, n.dtype) / (n + typed(eps, n.dtype)), 1.0) for n in lengths)
    return tuple(each * factor for each, factor in zip(gradients, factors, strict=True))


def clip_agc(
    gradients: GradientSet, weights: Sequence[Any], clipping: float = 0.01, eps: float = 1e-3, axis: int = 0
) -> tuple[tf.Tensor, ...]:
    """Return the gradients, each unit's at most clipping * max(||w||, eps) long (Brock et al. 2021, equation 3).

    A unit is one index along ``axis``, in vectors and numbers the whole tensor. The weights count as constants.
    """
    found: list[tf.Tensor] = []
    for gradient, weight in zip(gradients, weights, strict=True):
        weight = tf.stop_gradient(tf.convert_to_tensor(weight))
        longest = typed(clipping, weight.dtype) * tf.maximum(unit_norm(weight, axis), typed(eps, weight.dtype))
        found.append(clip_units(tf.ensure_shape(gradient, weight.shape), longest, axis))
    return tuple(found)


def clip_units(gradient: tf.Tensor, longest: tf.Tensor, axis: int) -> tf.Tensor:
    """Return a gradient whose units are at most so long."""
    length = unit_norm(gradient, axis)
    is_long = length > longest
    one = tf.ones_like(length)
    return gradient * tf.where(is_long, longest / tf.where(is_long, length, one), one)


def unit_norm(x: tf.Tensor, axis: int) -> tf.Tensor:
    """Return the Euclidean norm of every unit, with axes of size 1 for what it goes over."""
    return norm(x, unit_axes(x, axis) if x.shape.rank > 1 else None, keepdims=True)


def unit_axes(x: tf.Tensor, axis: int) -> tuple[int, ...]:
    """Return the axes that a unit spans: all but one."""
    return tuple(each for each in range(x.shape.rank) if each != axis % x.shape.rank)


def scale_set(gradients: GradientSet, factor: float) -> tuple[tf.Tensor, ...]:
    """Return the gradients times a factor."""
    return tuple(each * typed(factor, each.dtype) for each in gradients)


def count_elements(gradients: GradientSet) -> tf.Tensor:
    """Return how many numbers a set has."""
    return tf.add_n([tf.size(each) for each in gradients])


def add_noise(gradients: GradientSet, noise: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """Return the gradients with one element of the noise added to each of theirs, in order."""
    parts = tf.split(noise, [tf.size(each) for each in gradients])
    return tuple(
        each + tf.cast(tf.reshape(part, tf.shape(each)), each.dtype)
        for part, each in zip(parts, gradients, strict=True)
    )


def centralize(gradients: GradientSet, axis: int = 0) -> tuple[tf.Tensor, ...]:
    """Return the gradients of matrices and larger tensors with mean 0 in every unit (Yong et al. 2020)."""
    return tuple(
        each - tf.reduce_mean(each, unit_axes(each, axis), keepdims=True) if each.shape.rank > 1 else each
        for each in gradients
    )


def normalize_set(gradients: GradientSet) -> tuple[tf.Tensor, ...]:
    """Return the gradients divided by max(||g||, 1e-12), the norm taken over the whole set."""
    length = norm(tf.stack([norm(each) for each in gradients]))
    factor = 1.0 / tf.maximum(length, tf.constant(1e-12, length.dtype))
    return tuple(each * factor for each in gradients)


def normalize_each(gradients: GradientSet) -> tuple[tf.Tensor, ...]:
    """Return every gradient divided by max(||g||, 1e-12), the norm taken over that one gradient."""
    return tuple(each / tf.maximum(norm(each), tf.constant(1e-12, each.dtype)) for each in gradients)


def set_product(first: GradientSet, second: GradientSet) -> tf.Tensor:
    """Return the inner product of two sets, over all elements of all gradients."""
    return tf.add_n([tf.reduce_sum(a * b) for a, b in zip(first, second, strict=True)])


def project(first: GradientSet, second: GradientSet) -> tuple[tf.Tensor, ...]:
    """Return first - min(0, <first, second>) / <second, second> * second; first where the second is zero."""
    square = set_product(second, second)
    share = tf.minimum(set_product(first, second), 0.0) / tf.where(square > 0, square, tf.ones_like(square))
    return tuple(a - share * b for a, b in zip(first, second, strict=True))


def pcgrad(sets: Sequence[GradientSet], order: tf.Tensor | None = None) -> tuple[tf.Tensor, ...]:
    """Return the sum of sets, each without what is against the others (Yu et al. 2020, algorithm 1).

    Each is projected against the others as they came, in rising order of its row of ``order``, by default as listed.
    Projections only mix the sets: it is done on the shares of each in each, by the inner products of all pairs.
    """
    count = len(sets)
    products = tf.stack([tf.stack([set_product(a, b) for b in sets]) for a in sets])
    own = tf.eye(count, dtype=products.dtype)
    if order is None:
        order = tf.zeros([count, count])
    turns = tf.gather(own, tf.argsort(order, axis=1, stable=True))
    squares, shares = tf.linalg.diag_part(products), own
    for turn in tf.unstack(turns, count, axis=1):
        other = turn * (1.0 - own)  # a set is not projected against itself
        square = tf.linalg.matvec(other, squares)
        against = tf.minimum(tf.reduce_sum((shares @ products) * other, 1), 0.0)
        against = against / tf.where(square > 0, square, tf.ones_like(square))
        shares = shares - against[:, None] * other
    factors = tf.unstack(tf.reduce_sum(shares, 0), count)
    parts = [[each * share for each in one] for one, share in zip(sets, factors, strict=True)]
    return tuple(tf.add_n(list(each)) for each in zip(*parts, strict=True))


def adapted(
    weights: Sequence[Any], gradients: Sequence[Any], rate: float | tf.Tensor | Sequence[Any]
) -> tuple[tf.Tensor, ...]:
    """Return weights - rate * gradients, with one rate or one for each; without a gradient a weight stays as it is."""
    rates: Sequence[Any] = rate if isinstance(rate, (list, tuple)) else [rate] * len(weights)
    return tuple(
        tf.identity(weight) if gradient is None else weight - typed(each, weight.dtype) * gradient
        for weight, gradient, each in zip(weights, gradients, rates, strict=True)
    )
