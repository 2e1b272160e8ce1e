"""Decays of averages that the host computes before each step, for the graphs to read."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from runtime.support.decays import Decay


class FedDecay(Decay):
    """A decay that the graphs read."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.now: Any = tf.Variable(tf.zeros((), tf.float64), False, name=f"averages/{self.op}")

    def feed(self) -> None:
        """Compute the number for the step that runs."""
        self.now.assign(super().__call__())

    def __call__(self) -> Any:
        """Return the number as a tensor in double precision."""
        return self.now.read_value()
