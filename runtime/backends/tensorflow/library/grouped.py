"""Groups of parameters: an optimizer that steps some of its parameters with another rate or weight decay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from runtime.backends.tensorflow.library.optimizers import Numbers, Optimizer
from runtime.support.patterns import gathered, shares

Change: TypeAlias = float | Callable[[Any], tf.Tensor]
"""What is different for a group: a number, or a function of the updates applied before this one."""


def changed(options: Numbers, changes: Mapping[str, Change], applied: Any) -> dict[str, Any]:
    """Return options with what is different after so many updates: `lr_scale` and `weight_decay`, where there are such.

    ``lr_scale`` multiplies the learning rate, ``weight_decay`` takes the place of another.
    """
    now = {name: change(applied) if callable(change) else change for name, change in changes.items()}
    found = dict(options)
    if "lr" in found and "lr_scale" in now:
        found["lr"] = found["lr"] * now["lr_scale"]
    if "weight_decay" in found and "weight_decay" in now:
        found["weight_decay"] = now["weight_decay"]
    return found


class Grouped(Optimizer):
    """An optimizer of the library in parts, one per group.

    ``groups`` are pairs of parameters and what is different for them: ``lr_scale``, ``weight_decay``.
    """

    def __init__(
        self,
        rule: Callable[..., Optimizer],
        parameters: Iterable[tf.Variable],
        groups: Sequence[tuple[Sequence[tf.Variable], Mapping[str, Change]]],
        /,
        **options: Any,
    ) -> None:
        super().__init__(parameters, options, options.get("fused", "auto"))
        self.inside = options.get("momentum_form") == "lr_inside"
        self.shares = shares(self.parameters, groups)
        self.parts = [rule([self.parameters[at] for at in places], **options) for places, _ in self.shares]
        names = dict.fromkeys(name for part in self.parts for name in part.slots)
        parts = [(places, part.slots) for (places, _), part in zip(self.shares, self.parts, strict=True)]
        self.slots = {name: gathered([(places, slots[name]) for places, slots in parts]) for name in names}

    def advance(self, gradients: Sequence[tf.Tensor], options: Numbers, count: tf.Tensor) -> None:
        """Step every part with its own options."""
        before = tf.cast(count, tf.int64) - 1
        for (places, changes), part in zip(self.shares, self.parts, strict=True):
            now = {name: options[name] for name in part.options}
            part.advance([gradients[at] for at in places], changed(now, changes, before), count)
