"""Scheduled numbers: the schedules in the fields of ops, each in ticks of its clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from compiler.operands import Scheduled
from compiler.optimizers import OptimizerCell, find_optimizers, find_tempo
from compiler.pace import Pace, PaceProblem, Tempo
from compiler.schedules import UNKNOWN, declare_schedule, tell_pace
from graphspec.diagnostics import Diagnostic
from graphspec.graph import GraphSpec
from graphspec.ops import UpdateOp
from graphspec.schedule_places import find_schedules, find_term_schedules
from graphspec.schedules import ScheduleSpec

Place: TypeAlias = tuple[str | int, ...]
"""The op, and the place below it."""
TAKEN = ("tau",)
"""The place below an average of what is taken of the new; the program says what is kept of the old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledField:
    """A field of an op that holds a schedule: its place, and at which tempo whose updates it counts, if it does.

    What an update does to a model by that model's word has its place below both: ``fit``, ``net``, ``regularizer``.
    """

    place: Place
    schedule: ScheduleSpec
    tempo: Tempo
    cells: tuple[OptimizerCell, ...] = ()
    """Whose updates are counted, one after another."""
    path: Place
    """Where it is written."""

    @property
    def optimizer(self) -> str | None:
        """Return whose updates are counted; None where steps are."""
        return self.cells[0].name if self.cells else None


def declare_scheduled(spec: GraphSpec, pace: Pace) -> Mapping[Place, Scheduled]:
    """Return the numbers that change while training, by their places."""
    return {field.place: _declare(field) for field in _find_fields(spec, pace)}


def check_scheduled(spec: GraphSpec, pace: Pace) -> Iterator[Diagnostic]:
    """Yield E-PACE for every schedule of an op that cannot be counted by its clock."""
    for field in _find_fields(spec, pace):
        try:
            _require_one(field)
            declare_schedule(field.schedule, field.tempo)
        except PaceProblem as problem:
            yield tell_pace(spec, problem, field.path)


def _require_one(field: ScheduledField) -> None:
    """Raise PaceProblem for a field that counts the updates of an optimizer in whose place others come."""
    if len(field.cells) > 1:
        message = f"the updates of an optimizer that changes at epoch {field.cells[1].epoch} are not counted on"
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
    cells = tuple(find_optimizers(spec))
    for name, op in spec.ops.items():
        users = tuple(cell for cell in cells if name in cell.updates)
        for place, schedule in find_schedules(op):
            yield _count(spec, pace, (name, *place), schedule, users, ("ops", name, *place))
        if isinstance(op, UpdateOp):
            yield from _find_terms(spec, pace, name, op, users)


def _find_terms(
    spec: GraphSpec, pace: Pace, name: str, op: UpdateOp, users: tuple[OptimizerCell, ...]
) -> Iterator[ScheduledField]:
    """Yield every field of the constraints and regularizers of an update that holds a schedule, model by model."""
    for model in op.update:
        cells = tuple(cell for cell in users if model in cell.models)
        for place, schedule in find_term_schedules(spec, op, model) if cells else ():
            is_own = place[0] == "constraint" and op.constraint is not None
            holder = ("ops", name) if is_own else ("models", model)
            yield _count(spec, pace, (name, model, *place), schedule, cells, (*holder, *place))


def _count(
    spec: GraphSpec,
    pace: Pace,
    place: Place,
    schedule: ScheduleSpec,
    cells: tuple[OptimizerCell, ...],
    path: Place,
) -> ScheduledField:
    """Return a field with what its schedule counts: steps, or the updates of the optimizers of some cells."""
    if schedule.clock != "updates" or not cells:
        return ScheduledField(place=place, schedule=schedule, tempo=Tempo(pace=pace), path=path)
    tempo = find_tempo(spec, cells[0], pace)
    return ScheduledField(place=place, schedule=schedule, tempo=tempo, cells=cells, path=path)
