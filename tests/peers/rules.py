"""Optimizer rules in a few lines of NumPy, to compute the numbers of cases that differ.

``inside`` adds epsilon where Keras does: before the bias correction.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

Slots = dict[str, Any]
Rule = Callable[[Any, Any, int, Slots], Any]
"""Returns the new weight, given the weight, its gradient, the step from 1, and the slots, which it updates."""


def descend(rule: Rule, start: Any, gradients: Callable[[Any, int], Any], steps: int) -> np.ndarray:
    """Return the weight after some steps of a rule; the gradient depends on the weight and the step."""
    weight, slots = np.asarray(start, float), {}
    for step in range(1, steps + 1):
        weight = rule(weight, gradients(weight, step), step, slots)
    return weight


def keep(slots: Slots, name: str, decay: float, value: Any) -> Any:
    """Update and return a running average: decay * old + (1 - decay) * value."""
    slots[name] = decay * slots.get(name, 0.0) + (1 - decay) * value
    return slots[name]


def adam(w: Any, g: Any, step: int, slots: Slots, *, lr: float, eps: float, inside: bool = False) -> Any:
    m, v = keep(slots, "m", 0.9, g), keep(slots, "v", 0.999, g * g)
    one, two = 1 - 0.9**step, np.sqrt(1 - 0.999**step)
    return w - lr * (m * two / one / (np.sqrt(v) + eps) if inside else m / one / (np.sqrt(v) / two + eps))


def adamw(w: Any, g: Any, step: int, slots: Slots, *, lr: float, eps: float, decay: float, inside: bool = False) -> Any:
    return adam(w * (1 - lr * decay), g, step, slots, lr=lr, eps=eps, inside=inside)


def adamax(w: Any, g: Any, step: int, slots: Slots, *, lr: float, eps: float) -> Any:
    m = keep(slots, "m", 0.9, g)
    slots["u"] = np.maximum(0.999 * slots.get("u", 0.0), np.abs(g) + eps)
    return w - lr / (1 - 0.9**step) * m / slots["u"]


def adadelta(w: Any, g: Any, step: int, slots: Slots, *, lr: float, rho: float, eps: float) -> Any:
    change = np.sqrt(slots.get("changes", 0.0) + eps) / np.sqrt(keep(slots, "v", rho, g * g) + eps) * g
    keep(slots, "changes", rho, change * change)
    return w - lr * change


def adagrad(w: Any, g: Any, step: int, slots: Slots, *, lr: float, eps: float, initial: float = 0.0) -> Any:
    slots["sum"] = slots.get("sum", initial) + g * g
    return w - lr * g / (np.sqrt(slots["sum"]) + eps)


def nadam(w: Any, g: Any, step: int, slots: Slots, *, lr: float, eps: float) -> Any:
    now, then = 0.9 * (1 - 0.5 * 0.96**step), 0.9 * (1 - 0.5 * 0.96 ** (step + 1))
    product = slots["product"] = slots.get("product", 1.0) * now
    m, v = keep(slots, "m", 0.9, g), keep(slots, "v", 0.999, g * g)
    ahead = then * m / (1 - product * then) + (1 - now) * g / (1 - product)
    return w - lr * ahead / (np.sqrt(v / (1 - 0.999**step)) + eps)


def rmsprop(w: Any, g: Any, step: int, slots: Slots, *, lr: float, rho: float, eps: float) -> Any:
    return w - lr * g / (np.sqrt(keep(slots, "v", rho, g * g)) + eps)


def coupled(rule: Callable[..., Any], decay: float, steps: int, **options: float) -> np.ndarray:
    """Return what 2 becomes when weight decay is its whole gradient."""
    return descend(partial(rule, **options), 2.0, lambda w, step: decay * w, steps)
