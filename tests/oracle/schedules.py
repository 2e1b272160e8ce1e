"""Schedules as functions of n, by the table of the language."""

from __future__ import annotations

import math

from graphspec.declare.durations import Duration, Length
from graphspec.declare.schedules import CurveSpec, ScheduleSpec


def read(schedule: CurveSpec, n: float) -> float:
    """Return a schedule's value at n."""
    given = schedule.written()
    if isinstance(schedule, ScheduleSpec) and schedule.parts is not None:
        return _read_parts(schedule, n)
    if schedule.schedule == "piecewise":
        return [value for key, value in schedule.moments if _ticks(key) <= n][-1]
    return _read_curve(schedule.schedule, {key: _ticks(value) for key, value in given.items()}, n)


def _read_parts(schedule: ScheduleSpec, n: float) -> float:
    """Return the value of the part that n is in; a part begins at the first whole n that is reached."""
    begin = 0.0
    for part in schedule.parts or ():
        end = math.inf if part.length is None or part is schedule.parts[-1] else begin + _ticks(part.length)
        if n < end:
            return read(part, n - math.ceil(begin))
        begin = end
    raise AssertionError("the last part lasts for ever")


def _read_curve(kind: str, given: dict[str, float], n: float) -> float:
    start, to = given.get("from", 0.0), given.get("to", 0.0)
    share = min(1.0, n / given.get("over", 1.0))
    match kind:
        case "constant":
            return given["value"]
        case "linear" | "warmup":
            return (1 - share) * start + share * to
        case "cosine":
            return to + (start - to) * 0.5 * (1 + math.cos(math.pi * share))
        case "polynomial":
            return to + (start - to) * (1 - share) ** given.get("power", 1.0)
        case "exponential":
            return start * given["rate"] ** (n / given.get("per", 1))
        case _:
            return start * given["factor"] ** math.floor(n / given["every"])


def _ticks(length: Length) -> float:
    """Return a length as its number; only those that say what their clock counts are read here."""
    return length.count if isinstance(length, Duration) else length
