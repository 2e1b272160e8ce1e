"""Keras optimizers with the interface of the library's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.optimizers import Optimizer, plain_name, require_gradients

RATE = "learning_rate"
"""What Keras calls ``lr``; the only one of its options that is a variable, and so can follow a schedule."""
INNER = "inner_optimizer"
REFUSED = {
    "loss_scale_factor": "it expects losses multiplied by this factor: write `precision: {loss_scale: ...}`",
    "gradient_accumulation_steps": "updates would be counted that did not happen: write `accumulate: n` on the update",
    "use_ema": "its averages would stay in the optimizer: write an op `{ema: net, decay: 0.99}`",
    INNER: "it scales losses of its own: name the inner class, and write `precision: {loss_scale: dynamic}`",
}
"""Options of Keras's optimizers for what a step does itself, and what to write in the spec."""


class Shown:
    """A variable as Keras's optimizers look at it: with the name and path of one of Keras."""

    def __init__(self, variable: tf.Variable) -> None:
        self.variable = variable
        self.path = plain_name(variable)
        self.name = self.path.rpartition("/")[2]

    def __getattr__(self, name: str) -> Any:
        """Return what the variable has under this name."""
        return getattr(self.variable, name)

    def __tf_tensor__(self, dtype: Any = None, name: str | None = None) -> tf.Tensor:
        """Return the value."""
        return tf.convert_to_tensor(self.variable, dtype, name=name)


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
        is_outer = INNER in inspect.signature(rule).parameters  # it is not made: the spec gives it no optimizer
        self.optimizer: Any = None if is_outer else rule(**first)
        for option, remedy in REFUSED.items():
            if getattr(self.optimizer, option, None) or (is_outer and option == INNER):
                raise ValueError(f"{option} of {rule.__name__}: {remedy}")
        self.shown = [Shown(each) for each in self.parameters]
        self.optimizer.build(self.shown)

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
        self.optimizer.apply(list(gradients), self.shown)
        self.applied.assign_add(1)
