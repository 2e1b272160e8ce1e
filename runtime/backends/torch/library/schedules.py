"""Schedules: numbers that change with the updates applied so far; each maker returns a function of that count."""

from __future__ import annotations

import math
from collections.abc import Callable


def constant(value: float) -> Callable[[int], float]:
    """Return f(n) = value."""
    return lambda n: value


def linear(start: float, to: float, over: float) -> Callable[[int], float]:
    """Return a straight line from ``start`` at n = 0 to ``to`` at n = over, kept from then on."""
    return lambda n: start + (to - start) * min(n / over, 1.0)


def cosine(start: float, to: float, over: float) -> Callable[[int], float]:
    """Return half a cosine wave from ``start`` to ``to`` over ``over`` updates (SGDR, Loshchilov and Hutter 2017)."""
    return lambda n: to + (start - to) * (1 + math.cos(math.pi * min(n / over, 1.0))) / 2


def polynomial(start: float, to: float, over: float, power: float) -> Callable[[int], float]:
    """Return to + (start - to) (1 - n / over)^power, kept at ``to`` after ``over`` updates."""
    return lambda n: to + (start - to) * (1 - min(n / over, 1.0)) ** power


def exponential(start: float, rate: float, per: float) -> Callable[[int], float]:
    """Return start * rate^(n / per)."""
    return lambda n: start * rate ** (n / per)


def step_decay(start: float, factor: float, every: float) -> Callable[[int], float]:
    """Return start * factor^floor(n / every)."""
    return lambda n: start * factor ** (n // every)


def warmup(start: float, to: float, over: float) -> Callable[[int], float]:
    """Return a straight line from ``start`` to ``to`` over ``over`` updates, kept from then on."""
    return linear(start, to, over)
