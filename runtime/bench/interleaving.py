"""Timing on a machine that others use too: every number is a ratio inside one interleaved run."""

from __future__ import annotations

import gc
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Run = Callable[[], object]
"""Takes one step."""
SLICE = 40.0
"""How many milliseconds a variant is given in a round."""
WARM_UP, LONGEST = 10, 1.0
"""The steps before the measurement, fewer where they take longer than so many seconds."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """What one variant takes: milliseconds, and how many times as long as the baseline (median, 10 % and 90 %)."""

    milliseconds: float
    ratio: float
    low: float
    high: float
    cpu_ratio: float
    """The ratio of the processor's time alone; nan where the baseline takes none that can be measured."""
    rounds: int
    """How many rounds these numbers are of."""


@dataclass(frozen=True, kw_only=True)
class Lap:
    """Seconds of one call, by the wall clock and of the processor."""

    wall: float
    cpu: float


@dataclass(frozen=True, kw_only=True)
class Stopwatch:
    """The clocks of a measurement in seconds, and what makes a step end: on a device it may still be under way.

    ``wait`` gets what the last step of a slice has returned.
    """

    wall: Callable[[], float] = time.perf_counter
    cpu: Callable[[], float] = time.process_time
    wait: Callable[[object], None] = lambda _: None

    def time(self, step: Run, repeats: int) -> Lap:
        """Return what a step takes on average; the garbage collector is off meanwhile."""
        was_enabled, result = gc.isenabled(), None
        gc.disable()
        try:
            cpu, wall = self.cpu(), self.wall()
            for _ in range(repeats):
                result = step()
            self.wait(result)
            return Lap(wall=(self.wall() - wall) / repeats, cpu=(self.cpu() - cpu) / repeats)
        finally:
            if was_enabled:
                gc.enable()


STOPWATCH = Stopwatch()


def interleave(
    variants: Mapping[str, Run],
    baseline: str,
    *,
    rounds: int,
    slice_ms: float = SLICE,
    seed: int = 0,
    multiple: int = 1,
    stopwatch: Stopwatch = STOPWATCH,
    is_over: Callable[[], bool] = lambda: False,
) -> dict[str, Timing]:
    """Time variants against a baseline: in each round each runs once, in random order, for about a slice of time.

    A slow drift of the machine meets all of them. The processor's time leaves out when others had it. A slice has a
    ``multiple`` of so many steps, where not all steps do the same work. ``is_over`` is asked after every slice: if so,
    the round under way does not count, and the result is that of the rounds before it; it is empty without any.
    """
    shuffled = random.Random(seed)
    repeats: dict[str, int] = {}
    for name, step in variants.items():  # some steps warm up, and tell how many fill a slice of time
        began, taken, once = stopwatch.wall(), 0, 0.0
        while taken == 0 or (taken < WARM_UP and stopwatch.wall() - began < LONGEST):
            taken += multiple
            once = stopwatch.time(step, multiple).wall
        wanted = slice_ms / 1e3
        if once < wanted:
            once = min(stopwatch.time(step, multiple * 3).wall for _ in range(3))
        repeats[name] = max(1, round(wanted / once / multiple)) * multiple
        if is_over():
            return {}
    laps: dict[str, list[Lap]] = {name: [] for name in variants}
    order = list(variants)
    for _ in range(rounds):
        shuffled.shuffle(order)
        lap, is_stopped = dict[str, Lap](), False
        for name in order:
            lap[name] = stopwatch.time(variants[name], repeats[name])
            if is_stopped := is_over():
                break
        if len(lap) == len(order):
            for name, each in lap.items():
                laps[name].append(each)
        if is_stopped:
            break
    return {name: _summarize(laps[name], laps[baseline]) for name in variants} if laps[baseline] else {}


def _summarize(laps: list[Lap], baseline: list[Lap]) -> Timing:
    ratios = sorted(lap.wall / base.wall for lap, base in zip(laps, baseline, strict=True))
    return Timing(
        milliseconds=1e3 * statistics.median(lap.wall for lap in laps),
        ratio=statistics.median(ratios),
        low=ratios[len(ratios) // 10],
        high=ratios[-1 - len(ratios) // 10],
        cpu_ratio=statistics.median(
            lap.cpu / base.cpu if base.cpu else math.nan for lap, base in zip(laps, baseline, strict=True)
        ),
        rounds=len(laps),
    )
