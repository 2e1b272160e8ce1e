"""Schedules in ticks: every length of a declared schedule counted by its clock, at the tempo of its optimizer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias, cast

from compiler.facts.optimizers import OptimizerCell, find_optimizers, find_tempo
from compiler.ir.instructions import Instruction
from compiler.ir.value import Scheduled, ScheduleDecl
from compiler.timing.schedule_fields import find_schedules, find_term_schedules
from compiler.timing.units import Pace, PaceProblem, Tempo, exact
from graphspec.declare.durations import Duration, Length
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import UpdateOp
from graphspec.declare.schedules import LENGTHS, Clock, CurveSpec, PartSpec, ScheduleSpec
from graphspec.diagnostics import Diagnostic

Path = tuple[str | int, ...]
UNKNOWN = ScheduleDecl(kind="constant", fields={"value": 0.0}, clock="steps")
"""Replaces a schedule that cannot be counted; it is compared by identity and not listed."""


def check_schedules(spec: GraphSpec, pace: Pace) -> Iterator[Diagnostic]:
    """Yield E-PACE for every schedule that cannot be counted by its clock."""
    for cell in find_optimizers(spec):
        tempo = find_tempo(spec, cell, pace)
        for path, schedule in _find_below(spec, cell):
            try:
                declare_schedule(schedule, tempo)
            except PaceProblem as problem:
                yield report_pace(spec, problem, path)


def _find_below(spec: GraphSpec, cell: OptimizerCell) -> Iterator[tuple[Path, ScheduleSpec]]:
    """Yield the schedules of an optimizer's options, then those of the groups that it steps, with their places."""
    for option, value in cell.optimizer.options.items():
        if isinstance(value, ScheduleSpec):
            yield (*cell.path, option), value
        for index, each in enumerate(value) if isinstance(value, tuple) else ():
            if isinstance(each, ScheduleSpec):
                yield (*cell.path, option, index), each
    for model in (each for each in cell.models if each in spec.models):
        for index, group in enumerate(spec.models[model].groups):
            for option, value in (("lr_scale", group.lr_scale), ("weight_decay", group.weight_decay)):
                if isinstance(value, ScheduleSpec):
                    yield ("models", model, "groups", index, option), value


def report_pace(spec: GraphSpec, problem: PaceProblem, place: Path) -> Diagnostic:
    """Return E-PACE for a schedule at a place that cannot be counted by its clock."""
    span = spec.span(*place, *problem.path, key="at" in problem.path) or spec.span(*place)
    return Diagnostic(
        code="E-PACE",
        message=problem.message,
        span=span,
        notes=problem.notes(spec),
        help=problem.help,
        is_pending=problem.is_pending,
    )


def declare_schedule(schedule: ScheduleSpec, tempo: Tempo) -> ScheduleDecl:
    """Return a schedule with all lengths in ticks of its clock; raise PaceProblem where they cannot be counted."""
    count = _Count(clock=schedule.clock, tempo=tempo)
    pace = count.pace()
    if schedule.parts is None:
        return _declare_curve(schedule, count, (), pace)
    parts = tuple(_declare_curve(part, count, ("parts", index), pace) for index, part in enumerate(schedule.parts))
    return ScheduleDecl(
        kind="join", clock=schedule.clock, pace=pace, parts=parts, moments=_find_joints(schedule.parts, count)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Count:
    """How lengths are counted: by which clock, at which tempo."""

    clock: Clock
    tempo: Tempo

    def pace(self) -> int:
        """Return the steps of an epoch on the clock `epochs`, the samples of a step on `samples`, else 1."""
        if self.clock in ("updates", "steps"):
            return 1
        try:
            length = self.tempo.length(self.clock)
        except PaceProblem as problem:
            raise problem.within(f"`clock: {self.clock}` cannot be read", ("clock",)) from problem
        return int(length if self.clock == "epochs" else 1 / length)

    def ticks(self, length: Length, *path: str | int) -> Fraction:
        """Return a length in ticks of the clock; a number is one already."""
        if not isinstance(length, Duration):
            return exact(length)
        try:
            return self.tempo.convert(length, self.clock)
        except PaceProblem as problem:
            raise problem.within(f"`{length}` of a schedule cannot be counted in {self.clock}", path) from problem


def _declare_curve(curve: CurveSpec, count: _Count, path: Path, pace: int) -> ScheduleDecl:
    """Return one curve with its lengths in ticks."""
    fields: dict[str, float] = {}
    for name, value in curve.fields.items():
        if name in LENGTHS:
            fields[name] = _plain(count.ticks(value, *path, name))
        elif not isinstance(value, Duration):
            fields[name] = value
    moments = [
        count.ticks(moment, *path, "at", key) for key, (moment, _) in zip(curve.at or (), curve.moments, strict=True)
    ]
    return ScheduleDecl(
        kind=curve.schedule,
        fields=fields,
        clock=count.clock,
        pace=pace,
        values=tuple(value for _, value in curve.moments),
        moments=_whole(moments[1:], (*path, "at"), tuple(curve.at or ())[1:]),
    )


def _find_joints(parts: Sequence[PartSpec], count: _Count) -> tuple[int, ...]:
    """Return the ticks at which the parts of a join but the first begin."""
    joints: list[Fraction] = []
    for index, part in enumerate(parts[:-1]):
        name = "over" if part.for_ is None else "for"
        lasting = count.ticks(part.length or 0, "parts", index, name)
        joints.append(lasting + (joints[-1] if joints else 0))
    return _whole(joints, ("parts",), tuple(range(1, len(parts))))


def _whole(moments: Sequence[Fraction], path: Path, keys: Sequence[str | int]) -> tuple[int, ...]:
    """Return the first whole tick at or after each moment; raise PaceProblem where two fall on the same."""
    found: list[int] = []
    for key, moment in zip(keys, moments, strict=True):
        tick = math.ceil(moment)
        if tick <= (found[-1] if found else 0):
            message = f"two parts of this schedule begin at tick {tick} of its clock"
            raise PaceProblem(message, "give each a whole tick of the clock, in their order", path=(*path, key))
        found.append(tick)
    return tuple(found)


def _plain(number: Fraction) -> float:
    """Return a number of ticks, as an int where it is whole."""
    return int(number) if number.denominator == 1 else float(number)


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
            yield report_pace(spec, problem, field.path)


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


def find_scheduled(instruction: Instruction) -> Iterator[Scheduled]:
    """Yield the numbers of an instruction that change while training."""
    for setting in instruction.settings:
        each = cast("tuple[object, ...]", setting) if isinstance(setting, tuple) else (setting,)
        yield from (number for number in each if isinstance(number, Scheduled))
