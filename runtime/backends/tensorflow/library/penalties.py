"""Penalties: terms over parameters, by the slopes that they add to gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from runtime.backends.tensorflow.library.dtypes import typed
from runtime.backends.tensorflow.library.functions import sign
from runtime.backends.tensorflow.library.optimizers import require_gradients

Factor: TypeAlias = float | Callable[[], tf.Tensor]
"""A number, or what reads it in every step."""


class Penalty:
    """l1 times the absolute values of some parameters, l2 times their squares, or a function of each, summed.

    ``places`` are those of their gradients in the set to which the slopes are added. ``l1`` and ``l2`` are numbers, or
    what reads them in every step.
    """

    def __init__(
        self,
        parameters: Sequence[tf.Variable],
        places: Sequence[int],
        *,
        l1: Factor = 0.0,
        l2: Factor = 0.0,
        term: Callable[[tf.Tensor], Any] | None = None,
    ) -> None:
        self.parameters, self.places = parameters, places
        self.l1, self.l2, self.term = l1, l2, term

    def slope(self, parameter: tf.Variable) -> tf.Tensor:
        """Return the slope of the term at a parameter as it is now."""
        value = tf.convert_to_tensor(parameter)
        if self.term is None:
            factors = (each() if callable(each) else each for each in (self.l1, self.l2))
            of_signs, of_squares = (typed(each, value.dtype) for each in factors)
            return 2 * of_squares * value + of_signs * sign(value)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(value)
            made = self.term(value)
        return tf.convert_to_tensor(tape.gradient(made, value))


def regularize(
    gradients: Sequence[tf.Tensor], penalties: Iterable[Penalty], unless: tf.Tensor | None = None
) -> tuple[tf.Tensor, ...]:
    """Return gradients with the slopes of penalties added; not where ``unless`` holds."""
    require_gradients(gradients)
    found = list(gradients)
    for penalty in penalties:
        for place, parameter in zip(penalty.places, penalty.parameters, strict=True):
            added = found[place] + penalty.slope(parameter)
            found[place] = added if unless is None else tf.where(unless, found[place], added)
    return tuple(found)
