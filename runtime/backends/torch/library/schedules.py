"""Schedules: numbers that change while training; each maker returns a function of n, which counts from 0."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Mapping, Sequence

import torch

from runtime.support.clocks import Clock


def constant(value: float) -> Callable[[int], float]:
    """Return f(n) = value."""
    return lambda n: value


def linear(start: float, to: float, over: float) -> Callable[[int], float]:
    """Return a straight line from ``start`` at n = 0 to ``to`` at n = over, kept from then on."""
    return lambda n: start + (to - start) * min(n / over, 1.0)


def cosine(start: float, to: float, over: float) -> Callable[[int], float]:
    """Return half a cosine wave from ``start`` to ``to`` over ``over`` (SGDR, Loshchilov and Hutter 2017)."""
    return lambda n: to + (start - to) * (1 + math.cos(math.pi * min(n / over, 1.0))) / 2


def polynomial(start: float, to: float, over: float, power: float) -> Callable[[int], float]:
    """Return to + (start - to) (1 - n / over)^power, kept at ``to`` after ``over``."""
    return lambda n: to + (start - to) * (1 - min(n / over, 1.0)) ** power


def exponential(start: float, rate: float, per: float) -> Callable[[int], float]:
    """Return start * rate^(n / per)."""
    return lambda n: start * power(rate, n / per)


def step_decay(start: float, factor: float, every: float) -> Callable[[int], float]:
    """Return start * factor^floor(n / every)."""
    return lambda n: start * power(factor, n // every)


def power(base: float, exponent: float) -> float:
    """Return base^exponent: infinity, as on TensorFlow, where Python raises OverflowError."""
    try:
        return base**exponent
    except OverflowError:
        return math.inf


def warmup(start: float, to: float, over: float) -> Callable[[int], float]:
    """Return a straight line from ``start`` to ``to`` over ``over``, kept from then on."""
    return linear(start, to, over)


def piecewise(at: Mapping[int, float]) -> Callable[[int], float]:
    """Return the value at the last key that n has reached; the first key is 0."""
    moments, values = list(at), list(at.values())
    return lambda n: values[bisect.bisect_right(moments, n) - 1]


def joined(parts: Sequence[Callable[[int], float]], at: Sequence[int]) -> Callable[[int], float]:
    """Return one part after the other: the next begins at each n in ``at``, from its own 0 (optax.join_schedules)."""
    begins = [0, *at]

    def read(n: int) -> float:
        """Return the value of the part that n lies in."""
        index = bisect.bisect_right(begins, n) - 1
        return parts[index](n - begins[index])

    return read


def each_of(*parts: float | Callable[[int], float]) -> Callable[[int], tuple[float, ...]]:
    """Return f(n) = what each part gives at n; numbers stay as they are."""
    return lambda n: tuple(part(n) if callable(part) else part for part in parts)


def paced(clock: Clock, schedule: Callable[[int], float], *, times: int = 1, every: int = 1) -> Callable[[int], float]:
    """Return a schedule of the finished train steps in place of the updates: of ``times`` each, or ``every`` so many.

    Steps are read with neither, the samples before this step with ``times`` their number in one, and the finished
    epochs with ``every`` the steps of one.
    """
    read = timed(clock, schedule, times=times, every=every)
    return lambda n: read()


def timed(clock: Clock, schedule: Callable[[int], float], *, times: int = 1, every: int = 1) -> Callable[[], float]:
    """Return what reads a schedule as `paced` does, of nothing: the number that the steps so far give."""
    return lambda: schedule(clock.steps.get("train", 0) * times // every)


def filled(read: Callable[[], float], device: torch.device | str, dtype: torch.dtype) -> Callable[[], torch.Tensor]:
    """Return a reader that gives a number as a 0-d tensor without synchronizing the device."""
    return lambda: torch.full((), read(), device=device, dtype=dtype)
