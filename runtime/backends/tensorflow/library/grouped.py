"""Groups of parameters: an optimizer that steps some of its parameters with another rate or weight decay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.optimizers import Numbers, Optimizer
from runtime.support.patterns import gathered, shares


def changed(options: Numbers, lr_scale: float = 1.0, weight_decay: float | None = None) -> dict[str, Any]:
    """Return options with another learning rate or weight decay, those of the two that are among them."""
    found = dict(options)
    if "lr" in found:
        found["lr"] = found["lr"] * lr_scale
    if "weight_decay" in found and weight_decay is not None:
        found["weight_decay"] = weight_decay
    return found


class Grouped(Optimizer):
    """An optimizer of the library in parts, one per group.

    ``groups`` are pairs of parameters and what is different for them: ``lr_scale``, ``weight_decay``.
    """

    def __init__(
        self,
        rule: Callable[..., Optimizer],
        parameters: Iterable[tf.Variable],
        groups: Sequence[tuple[Sequence[tf.Variable], Mapping[str, float]]],
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
        for (places, changes), part in zip(self.shares, self.parts, strict=True):
            now = {name: options[name] for name in part.options}
            part.advance([gradients[at] for at in places], changed(now, **changes), count)
