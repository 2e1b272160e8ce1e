"""Checks of durations: E-PACE."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.epochs import check_windows
from compiler.pace import Pace
from compiler.phases import check_phases
from compiler.resets import check_resets
from compiler.scheduled import check_scheduled
from compiler.schedules import check_schedules
from compiler.thawing import check_thaws
from graphspec.diagnostics import Diagnostic
from graphspec.graph import GraphSpec


def check_pace(spec: GraphSpec, pace: Pace) -> Iterator[Diagnostic]:
    """Yield E-PACE for what is counted in a unit that nobody knows the length of."""
    yield from (*check_schedules(spec, pace), *check_scheduled(spec, pace), *check_phases(spec, pace))
    yield from (*check_thaws(spec, pace), *check_windows(spec, pace), *check_resets(spec, pace))
