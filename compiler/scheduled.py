"""Scheduled numbers: the schedules in the fields of ops, each in ticks of its clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from compiler.operands import Scheduled, ScheduleDecl
from compiler.optimizers import find_optimizers, find_tempo
from compiler.pace import Pace, PaceProblem, Tempo
from compiler.schedules import declare_schedule, tell_pace
from graphspec.diagnostics import Diagnostic
from graphspec.graph import GraphSpec
from graphspec.schedule_places import find_schedules
from graphspec.schedules import ScheduleSpec

Place: TypeAlias = tuple[str | int, ...]
"""The op, and the place below it."""
TAKEN = ("tau",)
"""The place below an average of what is taken of the new; the program says what is kept of the old."""
UNKNOWN = ScheduleDecl(kind="constant", fields={"value": 0.0}, clock="steps")
"""What stands for a schedule that cannot be counted, until its problem is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledField:
    """A field of an op that holds a schedule: its place, and at which tempo whose updates it counts, if it does."""

    place: Place
    schedule: ScheduleSpec
    tempo: Tempo
    optimizer: str | None


def declare_scheduled(spec: GraphSpec, pace: Pace) -> Mapping[Place, Scheduled]:
    """Return the numbers that change while training, by their places."""
    return {field.place: _declare(field) for field in _find_fields(spec, pace)}


def check_scheduled(spec: GraphSpec, pace: Pace) -> Iterator[Diagnostic]:
    """Yield E-PACE for every schedule of an op that cannot be counted by its clock."""
    for field in _find_fields(spec, pace):
        try:
            _require_one(spec, field)
            declare_schedule(field.schedule, field.tempo)
        except PaceProblem as problem:
            yield tell_pace(spec, problem, ("ops", *field.place))


def _require_one(spec: GraphSpec, field: ScheduledField) -> None:
    """Raise PaceProblem for a field that counts the updates of an optimizer in whose place others come."""
    users = [cell for cell in find_optimizers(spec) if field.place[0] in cell.updates]
    if field.optimizer is not None and len(users) > 1:
        message = f"the updates of an optimizer that changes at epoch {users[1].epoch} are not counted on"
        raise PaceProblem(message, "write `clock: steps`", path=("clock",))


def _declare(field: ScheduledField) -> Scheduled:
    """Return the number of a field; one that cannot be counted does not change."""
    try:
        schedule = declare_schedule(field.schedule, field.tempo)
    except PaceProblem:
        schedule = UNKNOWN
    name = ".".join(map(str, field.place))
    return Scheduled(name=name, schedule=schedule, optimizer=field.optimizer, complement=field.place[1:] == TAKEN)


def _find_fields(spec: GraphSpec, pace: Pace) -> Iterator[ScheduledField]:
    """Yield every field of an op that holds a schedule."""
    cells = {name: cell for cell in find_optimizers(spec) for name in cell.updates}
    for name, op in spec.ops.items():
        for place, schedule in find_schedules(op):
            cell = cells.get(name) if schedule.clock == "updates" else None
            tempo = Tempo(pace=pace) if cell is None else find_tempo(spec, cell, pace)
            optimizer = None if cell is None else cell.name
            yield ScheduledField(place=(name, *place), schedule=schedule, tempo=tempo, optimizer=optimizer)
