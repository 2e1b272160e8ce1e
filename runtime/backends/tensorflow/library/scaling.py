"""The loss scale: losses are differentiated multiplied by it, gradients divided by it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.dtypes import typed


class LossScale:
    """A factor that keeps small gradients from vanishing where models compute in float16.

    It grows after ``growth_steps`` steps in a row with finite gradients, and shrinks after a step with others; a fixed
    one does neither. ``before`` is what it was in the last step, ``skips`` how many steps in a row were not finite.
    """

    def __init__(
        self,
        initial: float,
        *,
        growth_steps: int = 2000,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        min_scale: float = 1.0,
        is_fixed: bool = False,
        most_skips: int | None = None,
    ) -> None:
        self.initial = initial
        self.scale, self.before = (tf.Variable(typed(initial, tf.float32), trainable=False) for _ in range(2))
        self.growth_steps, self.growth_factor, self.backoff_factor = growth_steps, growth_factor, backoff_factor
        self.min_scale, self.is_fixed, self.most_skips = min_scale, is_fixed, most_skips
        self.good, self.skips = (tf.Variable(tf.zeros((), tf.int64), trainable=False) for _ in range(2))

    def seed(self, loss: tf.Tensor) -> tf.Tensor:
        """Return what the gradient of a loss starts with: the scale in place of 1."""
        return tf.ones_like(loss) * tf.cast(self.scale.read_value(), loss.dtype)

    def scaled(self, seeds: Any) -> Any:
        """Return given seeds times the scale."""
        if isinstance(seeds, (tuple, list)):
            return tuple(self.scaled(each) for each in seeds)
        seeds = tf.convert_to_tensor(seeds)
        return seeds * tf.cast(self.scale.read_value(), seeds.dtype)

    def unscale(self, gradients: Sequence[tf.Tensor | None]) -> tuple[Any, ...]:
        """Return gradients divided by the scale; what is absent stays absent."""
        scale = self.scale.read_value()
        return tuple(None if each is None else each / tf.cast(scale, each.dtype) for each in gradients)

    def update(self, finite: tf.Tensor) -> None:
        """Let the scale follow a step whose gradients were all finite, or not."""
        scale = self.scale.read_value()
        wide = tf.cast(scale, tf.float64)
        grown = tf.cast(wide * self.growth_factor, tf.float32)
        shrunk = tf.cast(wide * self.backoff_factor, tf.float32)
        self.before.assign(scale)
        self.skips.assign(tf.where(finite, tf.zeros((), tf.int64), self.skips + 1))
        if self.is_fixed:
            return
        good = self.good + 1
        is_due = good >= self.growth_steps
        rising = tf.where(is_due & tf.math.is_finite(grown), grown, scale)
        self.scale.assign(tf.where(finite, rising, tf.maximum(shrunk, self.min_scale)))
        self.good.assign(tf.where(finite & tf.logical_not(is_due), good, tf.zeros((), tf.int64)))

    def check(self) -> None:
        """Raise NotFinite where too many steps in a row had gradients that are not finite."""
        if self.most_skips is not None and self.skips.numpy() > self.most_skips:
            raise NotFinite("GS282", "", f"{self.skips.numpy()} steps in a row had gradients that are not finite")


class NotFinite(ArithmeticError):
    """Gradients that are not finite where that ends the run."""

    def __init__(self, code: str, op: str, message: str) -> None:
        super().__init__(message)
        self.code, self.op, self.message = code, op, message
        self.notes: tuple[str, ...] = ()
        self.remedy = "`build(debug=True)`, or `run --debug nan`, finds the first value that is not finite"
