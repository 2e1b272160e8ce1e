"""Decays of averages: how much of the old average is kept, as functions of n, the writes of its source so far.

n counts the write that is averaged, so that it is 1 at first. The host computes these numbers, on every backend.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import SupportsFloat

from runtime.support.clocks import Gates


def constant_decay(value: float) -> Callable[[int], float]:
    """Return d = value."""
    return lambda n: value


def tf_decay(most: float) -> Callable[[int], float]:
    """Return d = min(most, (1 + n) / (10 + n)) (``tf.train.ExponentialMovingAverage`` with ``num_updates``)."""
    return lambda n: min(most, (1 + n) / (10 + n))


def tf_warm_decay(most: float, least: float = 0.0) -> Callable[[int], float]:
    """Return a copy, then (1 + s) / (10 + s) within limits, s = n - 1 (diffusers' ``EMAModel``)."""
    return lambda n: 0.0 if n <= 1 else min(max(n / (9 + n), least), most)


def inverse_power_decay(
    most: float, least: float = 0.0, gamma: float = 1.0, power: float = 2 / 3
) -> Callable[[int], float]:
    """Return a copy, then 1 - (1 + s / gamma)^-power within limits, s = n - 1 (timm's ``ModelEmaV3``, diffusers)."""
    return lambda n: 0.0 if n <= 1 else min(max(1 - (1 + (n - 1) / gamma) ** -power, least), most)


def exp_ramp_decay(most: float, tau: float) -> Callable[[int], float]:
    """Return d = most (1 - exp(-n / tau)) (YOLO)."""
    return lambda n: most * (1 - math.exp(-n / tau))


def anneal_decay(most: float, gamma: float) -> Callable[[int], float]:
    """Return 1 - d = max(1 - most, gamma / (gamma + s)), s = n - 1 (MMEngine's ``MomentumAnnealingEMA``)."""
    return lambda n: min(most, (n - 1) / (gamma + n - 1))


def cosine_decay(start: float, to: float, over: float) -> Callable[[int], float]:
    """Return half a cosine wave from ``start`` at n = 1 to ``to``, ``over`` writes later (BYOL, Grill et al. 2020)."""
    return lambda n: to - (to - start) * (math.cos(math.pi * min((n - 1) / over, 1.0)) + 1) / 2


def power_decay(gamma: float) -> Callable[[int], float]:
    """Return d = (1 - 1 / n)^(gamma + 1): the average has a width in proportion to n (Karras et al. 2024)."""
    return lambda n: ((n - 1) / n) ** (gamma + 1)


def uniform_decay() -> Callable[[int], float]:
    """Return d = (n - 1) / n: the mean of all that was averaged (SWA, Izmailov et al. 2018)."""
    return lambda n: (n - 1) / n


def hard_decay(every: int) -> Callable[[int], float]:
    """Return 0 at every so many writes, and else 1: a copy, or nothing (DQN's target)."""
    return lambda n: 0.0 if n % every == 0 else 1.0


class Decay:
    """How much of the old average is kept when an average takes place, which depends on how often it did before.

    ``curve`` is a function of the writes of its source, of which ``first`` are counted at its first time and ``every``
    at each other. ``compounds``: what every write in between would keep is multiplied. ``copies``: the first time
    keeps nothing. ``debiases``: the average began at zero, and what is kept makes it e / (1 - d1 d2 ... dn) of that e
    at any time: readers need not divide (Adam's correction; optax.ema with ``debias``). ``taken``: the
    curve says what is taken of the new. Before the train step ``since`` it is a copy, and counts nothing. An average in
    the iterations of a part is several ops, which have one count.
    """

    def __init__(
        self,
        op: str | tuple[str, ...],
        gates: Gates,
        curve: Callable[[int], SupportsFloat],
        *,
        first: int = 1,
        every: int = 1,
        since: int = 1,
        compounds: bool = False,
        copies: bool = False,
        debiases: bool = False,
        taken: bool = False,
    ) -> None:
        self.ops = (op,) if isinstance(op, str) else op
        self.gates, self.curve, self.first, self.every, self.since = gates, curve, first, every, since
        self.compounds, self.copies, self.debiases, self.taken = compounds, copies, debiases, taken
        listed = ((mode, gate) for mode, found in gates.gates.items() for gate in found)
        # the modes in which it is taken, not those in which it only stands in for its source
        self.modes = {mode for mode, gate in listed if gate.op in self.ops and gate.clock != "averaged"}
        self.times = 0  # how often it took place
        self.known = (0, 1.0)  # so many times, and the product of their decays

    def __call__(self, number: int = 1) -> float:
        """Return what is kept in the step that runs, if it takes place there, in the iteration of a number."""
        clock = self.gates.clock
        if self not in clock.pending:
            clock.pending.append(self)
        earlier = self.ops[: number - 1]
        times = self.times + sum(op in earlier for op in self.gates.found[1])
        if clock.step < self.since or (self.copies and times == 0):
            return 0.0
        kept = self.at(times)
        if not self.debiases:
            return kept
        before = self.share_of_zeros(times)
        return 1.0 if before * kept == 1.0 else kept * (1 - before) / (1 - before * kept)

    def at(self, times: int) -> float:
        """Return the decay after the average took place so many times."""
        n = self.first + self.every * times
        passed = (self.every if times else self.first) if self.compounds else 1
        kept = (float(self.curve(each)) for each in range(n - passed + 1, n + 1))
        return math.prod(1 - each if self.taken else each for each in kept)

    def share_of_zeros(self, until: int) -> float:
        """Return how much of what the average began with is left of it after so many times: the product of decays."""
        times, product = self.known if self.known[0] <= until else (0, 1.0)
        while times < until and product > 0:
            times, product = times + 1, product * self.at(times)
        self.known = until, product
        return product

    def keep(self) -> None:
        """Count the step that is finished, if the average took place in it."""
        mode = self.gates.clock.mode
        if mode in self.modes and self.gates.clock.step >= self.since:
            self.times += sum(op in self.ops and op not in self.gates.held for op in self.gates.fired.get(mode, ()))
