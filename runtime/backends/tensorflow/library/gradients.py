"""Gradients of a tape, and transforms of gradient sets: each takes a tuple of gradients and returns a new one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from runtime.backends.tensorflow.library.dtypes import typed

GradientSet: TypeAlias = Sequence[tf.Tensor]
"""Gradients of the parameters of one or several models, in order."""


def gradients(
    tape: tf.GradientTape,
    loss: Any,
    targets: Sequence[Any],
    seeds: Any = None,
    unconnected: str = "error",
) -> tuple[Any, ...]:
    """Return the gradients of a loss with respect to targets, dense ones.

    ``seeds`` are what the gradient of a loss that is no single number starts with. Where the loss does not reach a
    target: ``error`` raises RuntimeError, ``skip`` gives None, ``zero`` zeros. Raises ValueError where there is no
    target, and for a loss that is no single number: the tape would take its sum without a word.
    """
    if not targets:
        raise ValueError("there is nothing to differentiate by")
    if seeds is None and tf.is_tensor(loss) and loss.shape.rank and loss.shape.num_elements() != 1:
        raise ValueError("the loss is not a single number")
    if seeds is None and tf.is_tensor(loss) and loss.shape.rank is None:
        single = tf.debugging.Assert(tf.equal(tf.size(loss), 1), ["the loss is not a single number"])
        with tf.control_dependencies([single]):
            seeds = tf.ones_like(loss)
    found = tape.gradient(loss, list(targets), output_gradients=seeds)
    return tuple(dense(gradient, target, unconnected) for gradient, target in zip(found, targets, strict=True))


def dense(gradient: Any, target: Any, unconnected: str) -> Any:
    """Return a gradient whose rows are summed where several belong to one index; the substitute for an absent one."""
    if gradient is not None:
        return tf.convert_to_tensor(gradient)
    if unconnected == "error":
        name = target.name if isinstance(target, tf.Variable) else "a value"
        raise RuntimeError(f"{name} has no gradient: the loss does not reach it")
    return tf.zeros_like(target) if unconnected == "zero" else None


def together(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return values none of which is there before all of them are; None stays None.

    `tf.recompute_grad` ends with an IdentityN over all its results. TensorFlow's graph optimizer takes that for a path
    from every read inside to every use of a result, drops the edges that make writes wait for those reads, and splits
    the IdentityN afterwards: weights were written before a gradient had read them. An EnsureShape stays.
    """
    there = [value if value is None else tf.ensure_shape(value, value.shape) for value in values]
    with tf.control_dependencies([tf.group(*(value for value in there if value is not None))]):
        return tuple(value if value is None else tf.identity(value) for value in there)


def set_norm(gradients: GradientSet) -> tf.Tensor:
    """Return the Euclidean norm over all elements of all gradients."""
    return tf.sqrt(tf.add_n([tf.reduce_sum(each * each) for each in gradients]))


def clip_norm(gradients: GradientSet, norm: float, eps: float = 0.0) -> tuple[tf.Tensor, ...]:
    """Return the gradients times min(1, norm / (||g|| + eps)), the norm taken over the whole set."""
    length = set_norm(gradients)
    factor = tf.minimum(typed(norm, length.dtype) / (length + typed(eps, length.dtype)), 1.0)
    return tuple(each * factor for each in gradients)


def clip_value(gradients: GradientSet, value: float) -> tuple[tf.Tensor, ...]:
    """Return the gradients with every element kept between ``-value`` and ``value``."""
    limits = [typed(value, each.dtype) for each in gradients]
    return tuple(tf.clip_by_value(each, -limit, limit) for each, limit in zip(gradients, limits, strict=True))


def add_sets(first: GradientSet, *others: GradientSet) -> GradientSet:
    """Return the sum of gradient sets over the same parameters."""
    for other in others:
        first = tuple(a + b for a, b in zip(first, other, strict=True))
    return first


def sub_sets(first: GradientSet, second: GradientSet) -> GradientSet:
    """Return the difference of two gradient sets over the same parameters."""
    return tuple(a - b for a, b in zip(first, second, strict=True))


def mul_sets(first: GradientSet, *others: GradientSet | tf.Tensor, factors: tuple[float, ...] = ()) -> GradientSet:
    """Return the product of gradient sets and numbers, element by element."""
    for other in (*others, *factors):
        first = tuple(a * b for a, b in partners(first, other))
    return first


def lerp_sets(
    first: GradientSet,
    second: GradientSet,
    weight: tf.Tensor | None = None,
    factors: tuple[float, ...] = (),
) -> tuple[tf.Tensor, ...]:
    """Return first + weight * (second - first); the weight may be written as a number."""
    share = factors[0] if weight is None else weight
    return tuple(a + b * (c - a) for (a, b), c in zip(partners(first, share), second, strict=True))


def partners(gradients: GradientSet, other: Any) -> Iterator[tuple[tf.Tensor, Any]]:
    """Yield every gradient with its partner: an element of another set, or one number for all."""
    for index, gradient in enumerate(gradients):
        if isinstance(other, (tuple, list)):
            yield gradient, other[index]
        else:
            yield gradient, tf.cast(other, gradient.dtype) if tf.is_tensor(other) else other
