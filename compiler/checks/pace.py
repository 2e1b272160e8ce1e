"""Checks of durations: E-PACE."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from compiler.epochs import check_windows
from compiler.pace import Pace, assume_pace
from compiler.phases import check_phases
from compiler.resets import check_resets
from compiler.scheduled import check_scheduled
from compiler.schedules import check_schedules
from compiler.thawing import check_thaws
from compiler.timing import Timed, apply_pace
from graphspec.diagnostics import Diagnostic
from graphspec.graph import GraphSpec


def check_pace(spec: GraphSpec, pace: Pace) -> Iterator[Diagnostic]:
    """Yield E-PACE for what is counted in a unit that nobody knows the length of."""
    yield from (*check_schedules(spec, pace), *check_scheduled(spec, pace), *check_phases(spec, pace))
    yield from (*check_thaws(spec, pace), *check_windows(spec, pace), *check_resets(spec, pace))


def check_durations(
    spec: GraphSpec, timed: Timed, pace: Pace, *, pending: bool
) -> tuple[tuple[Diagnostic, ...], tuple[Diagnostic, ...]]:
    """Return the problems of what is counted, and the notes of what waits for a length that only a run knows.

    ``timed`` is the spec at the pace. Without ``pending`` nothing may wait. What no length would mend is a problem all
    the same.
    """
    uncounted = (*timed.problems, *check_pace(timed.spec, pace))
    left = tuple(dict.fromkeys(replace(each, severity="note") for each in uncounted if pending and each.is_pending))
    problems = [each for each in uncounted if not (pending and each.is_pending)]
    if left:
        assumed = assume_pace(pace)
        later = apply_pace(spec, assumed)
        others = (*later.problems, *check_pace(later.spec, assumed))
        problems.extend(each for each in others if each.code == "E-PACE")
    return tuple(problems), left
