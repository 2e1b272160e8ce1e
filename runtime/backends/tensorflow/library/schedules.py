"""Schedules: numbers that change while training; each maker returns a function of n, which counts from 0.

n is an int64 tensor and the number a float64 tensor: rates are computed where the counts are, and change no trace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from runtime.backends.tensorflow.library.dtypes import typed

Schedule: TypeAlias = Callable[[Any], tf.Tensor]
"""A function of n."""


def real(x: Any) -> tf.Tensor:
    """Return a number as a float64 tensor."""
    return typed(x, tf.float64)


def share_of(n: Any, over: float) -> tf.Tensor:
    """Return how much of ``over`` has passed at n, at most 1."""
    return tf.minimum(real(n) / over, 1.0)


def constant(value: float) -> Schedule:
    """Return f(n) = value."""
    return lambda n: real(value)


def linear(start: float, to: float, over: float) -> Schedule:
    """Return a straight line from ``start`` at n = 0 to ``to`` at n = over, kept from then on."""
    return lambda n: start + (to - start) * share_of(n, over)


def cosine(start: float, to: float, over: float) -> Schedule:
    """Return half a cosine wave from ``start`` to ``to`` over ``over`` (SGDR, Loshchilov and Hutter 2017)."""
    return lambda n: to + (start - to) * (1 + tf.cos(math.pi * share_of(n, over))) / 2


def polynomial(start: float, to: float, over: float, power: float) -> Schedule:
    """Return to + (start - to) (1 - n / over)^power, kept at ``to`` after ``over``."""
    return lambda n: to + (start - to) * (1 - share_of(n, over)) ** power


def exponential(start: float, rate: float, per: float) -> Schedule:
    """Return start * rate^(n / per)."""
    return lambda n: start * real(rate) ** (real(n) / per)


def step_decay(start: float, factor: float, every: float) -> Schedule:
    """Return start * factor^floor(n / every)."""
    return lambda n: start * real(factor) ** whole_times(n, every)


def whole_times(n: Any, every: float) -> tf.Tensor:
    """Return how often ``every`` goes into n: exactly, where the rounded quotient would reach the next whole number."""
    n = real(n)
    return tf.round((n - tf.truncatemod(n, real(every))) / every)


def warmup(start: float, to: float, over: float) -> Schedule:
    """Return a straight line from ``start`` to ``to`` over ``over``, kept from then on."""
    return linear(start, to, over)


def piecewise(at: Mapping[int, float]) -> Schedule:
    """Return the value at the last key that n has reached; the first key is 0."""
    moments, values = list(at), list(at.values())
    return lambda n: tf.gather(tf.constant(values, tf.float64), last_reached(moments, n))


def joined(parts: Sequence[Schedule], at: Sequence[int]) -> Schedule:
    """Return one part after the other: the next begins at each n in ``at``, from its own 0 (optax.join_schedules)."""
    begins = [0, *at]

    def read(n: Any) -> tf.Tensor:
        """Return the value of the part that n lies in."""
        values = [part(tf.maximum(tf.cast(n, tf.int64) - begin, 0)) for part, begin in zip(parts, begins, strict=True)]
        return tf.gather(tf.stack(values), last_reached(begins, n))

    return read


def last_reached(moments: Sequence[int], n: Any) -> tf.Tensor:
    """Return the place of the last of some rising numbers that n has reached; the first is 0."""
    return tf.reduce_sum(tf.cast(tf.constant(moments, tf.int64) <= tf.cast(n, tf.int64), tf.int32)) - 1


def each_of(*parts: float | Schedule) -> Callable[[Any], tuple[Any, ...]]:
    """Return f(n) = what each part gives at n; numbers stay as they are."""
    return lambda n: tuple(part(n) if callable(part) else part for part in parts)


def paced(steps: tf.Variable, schedule: Schedule, *, times: int = 1, every: int = 1) -> Schedule:
    """Return a schedule of the finished train steps in place of the updates: of ``times`` each, or ``every`` so many.

    Steps are read with neither, the samples before this step with ``times`` their number in one, and the finished
    epochs with ``every`` the steps of one.
    """
    read = timed(steps, schedule, times=times, every=every)
    return lambda n: read()


def timed(steps: tf.Variable, schedule: Schedule, *, times: int = 1, every: int = 1) -> Callable[[], tf.Tensor]:
    """Return what reads a schedule as `paced` does, of nothing: the number that the steps so far give."""
    return lambda: schedule(steps * times // every)


def in_step_type(read: Callable[[], tf.Tensor], dtype: tf.DType) -> Callable[[], tf.Tensor]:
    """Return what reads a number in the type of the step; it is computed in float64."""
    return lambda: tf.cast(read(), dtype)
