"""Optimizers of Keras behind the calling form of the library's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.optimizers import Optimizer, require_gradients

RATE = "learning_rate"
"""What Keras calls ``lr``; the only one of its options that is a variable, and so can follow a schedule."""
REFUSED = {
    "loss_scale_factor": "it expects losses multiplied by this factor: write `precision: {loss_scale: ...}`",
    "gradient_accumulation_steps": "updates would be counted that did not happen: write `accumulate: n` on the update",
    "use_ema": "its averages would stay in the optimizer: write an op `{ema: net, decay: 0.99}`",
    "inner_optimizer": "a LossScaleOptimizer scales losses of its own: write `precision: {loss_scale: dynamic}`",
}
"""Options of Keras's optimizers for what a step does itself, and what to write in the spec."""


class Wrapped(Optimizer):
    """An optimizer of Keras; its slots are made before the first trace."""

    rate_name = RATE

    def __init__(self, parameters: Iterable[tf.Variable], rule: Callable[..., Any], **written: Any) -> None:
        options: dict[str, Any] = {RATE if name == "lr" else name: value for name, value in written.items()}
        fixed = [name for name, value in options.items() if callable(value) and name != RATE]
        if fixed:
            raise ValueError(f"{fixed[0]}: Keras takes a number here and no schedule; only {RATE} can follow one")
        super().__init__(parameters, options, False)
        first = {**options, RATE: 0.0} if callable(options.get(RATE)) else options
        self.optimizer = rule(**first)
        for option, remedy in REFUSED.items():
            if getattr(self.optimizer, option, None):
                raise ValueError(f"{option} of {type(self.optimizer).__name__}: {remedy}")
        self.optimizer.build(self.parameters)

    def next_rate(self, before: Any) -> tf.Tensor:
        """Return the learning rate after so many updates; without a schedule it is Keras's own."""
        is_scheduled = callable(self.options.get(RATE))
        return super().next_rate(before) if is_scheduled else tf.cast(self.optimizer.learning_rate, tf.float64)

    def apply(self, gradients: Sequence[tf.Tensor]) -> None:
        """Step the parameters with Keras's rule."""
        require_gradients(gradients)
        if callable(self.options.get(RATE)):
            rate = self.take_rate(self.applied.read_value())
            self.optimizer.learning_rate.assign(tf.cast(rate, self.optimizer.learning_rate.dtype))
        self.optimizer.apply(list(gradients), self.parameters)
        self.applied.assign_add(1)
