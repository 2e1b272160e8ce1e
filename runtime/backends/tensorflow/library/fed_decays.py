"""Decays of averages that the host computes before each step, for the graphs to read."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from runtime.support.decays import Decay


class FedDecay(Decay):
    """A decay that the graphs read."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        shape = () if len(self.ops) == 1 else (len(self.ops),)
        self.now: Any = tf.Variable(tf.zeros(shape, tf.float64), False, name=f"averages/{self.ops[0]}")

    def feed(self) -> None:
        """Compute the number for the step that runs."""
        numbers = [Decay.__call__(self, number) for number in range(1, len(self.ops) + 1)]
        self.now.assign(numbers if len(numbers) > 1 else numbers[0])

    def __call__(self, number: int = 1) -> Any:
        """Return the number as a tensor in double precision; of several iterations that of one."""
        return self.now.read_value() if len(self.ops) == 1 else self.now.read_value()[number - 1]
