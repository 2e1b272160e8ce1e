"""Timing on a machine that others use too: every number is a ratio inside one interleaved run."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Timing:
    """What one variant takes: milliseconds, and how many times as long as the baseline (median, 10 % and 90 %)."""

    milliseconds: float
    ratio: float
    low: float
    high: float
    cpu_ratio: float


@dataclass(frozen=True, kw_only=True)
class Lap:
    """Seconds of one call, by the wall clock and of the processor."""

    wall: float
    cpu: float


def interleave(
    variants: Mapping[str, Callable[[], object]], baseline: str, *, rounds: int, slice_ms: float = 40.0, seed: int = 0
) -> dict[str, Timing]:
    """Time variants against a baseline: in each round each runs once, in random order, for about a slice of time.

    A slow drift of the machine meets all of them. The processor's time leaves out when others had it.
    """
    shuffled = random.Random(seed)
    repeats = {name: _find_repeats(step, slice_ms) for name, step in variants.items()}
    laps: dict[str, list[Lap]] = {name: [] for name in variants}
    order = list(variants)
    for _ in range(rounds):
        shuffled.shuffle(order)
        for name in order:
            laps[name].append(_run(variants[name], repeats[name]))
    return {name: _summarise(laps[name], laps[baseline]) for name in variants}


def _find_repeats(step: Callable[[], object], slice_ms: float) -> int:
    for _ in range(10):
        step()
    once = min(_run(step, 3).wall for _ in range(3))
    return max(1, round(slice_ms / 1e3 / once))


def _run(step: Callable[[], object], repeats: int) -> Lap:
    gc.disable()
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(repeats):
        step()
    lap = Lap(wall=(time.perf_counter() - wall) / repeats, cpu=(time.process_time() - cpu) / repeats)
    gc.enable()
    return lap


def _summarise(laps: list[Lap], baseline: list[Lap]) -> Timing:
    ratios = sorted(lap.wall / base.wall for lap, base in zip(laps, baseline, strict=True))
    return Timing(
        milliseconds=1e3 * statistics.median(lap.wall for lap in laps),
        ratio=statistics.median(ratios),
        low=ratios[len(ratios) // 10],
        high=ratios[-1 - len(ratios) // 10],
        cpu_ratio=statistics.median(lap.cpu / base.cpu for lap, base in zip(laps, baseline, strict=True)),
    )
