"""Norms: how long the gradients of updates are, for those who ask when a step is over."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from runtime.backends.tensorflow.library.missing import MaybeGradients, number_of


class Norms:
    """The norms of the gradients that updates were given last."""

    def __init__(self, updates: Sequence[str]) -> None:
        self.kept = {update: tf.Variable(tf.zeros((), tf.float64), trainable=False) for update in updates}

    def keep(self, update: str, *sets: MaybeGradients) -> None:
        """Measure the gradients of an update, over all elements of all its sets."""
        gradients = [number_of(gradient) for each in sets for gradient in each if gradient is not None]
        norm = tf.linalg.global_norm(gradients) if gradients else 0.0
        self.kept[update].assign(tf.cast(norm, tf.float64))

    def read(self) -> dict[str, float]:
        """Return what was measured, by update."""
        return {update: float(variable.numpy()) for update, variable in self.kept.items()}
