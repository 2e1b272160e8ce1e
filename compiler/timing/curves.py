"""Schedules in ticks: every length of a declared schedule counted by its clock, at the rate of its optimizer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace

from compiler.facts.optimizers import OptimizerCell, find_clock_rates, find_optimizers
from compiler.ir.instructions import Instruction
from compiler.ir.value import Scheduled, ScheduleDecl
from compiler.timing.units import ClockRates, Pace, PaceProblem, exact
from graphspec.analysis.remembering import once_per_spec
from graphspec.declare.base import Declaration
from graphspec.declare.durations import Duration, Length
from graphspec.declare.graph import GraphSpec
from graphspec.declare.inputs import Inputs
from graphspec.declare.ops import Op, ScheduleOp, UpdateOp
from graphspec.declare.optimizers import OptimizerSpec
from graphspec.declare.schedules import LENGTHS, Clock, CurveSpec, ScheduleSpec
from graphspec.diagnostics import Diagnostic

Path = tuple[str | int, ...]
UNKNOWN = ScheduleDecl(kind="constant", fields={"value": 0.0}, clock="steps")
"""Replaces the decay of an average that cannot be counted; it is compared by identity and not listed."""


def stand_in(schedule: ScheduleSpec) -> ScheduleDecl:
    """Return what takes the place of a schedule that cannot be counted yet: a number that plans print as written."""
    return replace(UNKNOWN, uncounted=schedule)


def check_schedules(spec: GraphSpec, pace: Pace) -> Iterator[Diagnostic]:
    """Yield E-PACE for every schedule of an optimizer, or of a group that it steps, that its clock cannot count."""
    for cell in find_optimizers(spec):
        found = [*_find_inside(cell.optimizer.options, cell.path)]
        for model in (each for each in cell.models if each in spec.models and not cell.chosen):
            for index, group in enumerate(spec.models[model].groups):
                own = {"lr_scale": group.lr_scale, "weight_decay": group.weight_decay}
                found += _find_inside(own, ("models", model, "groups", index))
        for path, schedule in found:
            try:
                declare_schedule(schedule, find_clock_rates(spec, cell, pace))
            except PaceProblem as problem:
                yield report_pace(spec, problem, path)


def report_pace(spec: GraphSpec, problem: PaceProblem, place: Path) -> Diagnostic:
    """Return E-PACE for a schedule at a place that cannot be counted by its clock."""
    span = spec.span(*place, *problem.path, key="at" in problem.path) or spec.span(*place)
    return Diagnostic(
        code="E-PACE",
        message=problem.message,
        span=span,
        notes=problem.notes(spec),
        help=problem.remedy(spec),
        is_pending=problem.is_pending,
    )


def declare_schedule(schedule: ScheduleSpec, rates: ClockRates) -> ScheduleDecl:
    """Return a schedule with all lengths in ticks of its clock; raise PaceProblem where they cannot be counted."""
    count = _Count(clock=schedule.clock, rates=rates)
    pace = count.pace()
    if schedule.parts is None:
        return _declare_curve(schedule, count, (), pace)
    parts = tuple(_declare_curve(part, count, ("parts", index), pace) for index, part in enumerate(schedule.parts))
    # The ticks at which the parts but the first begin.
    begun, joints = Fraction(0), list[Fraction]()
    for index, part in enumerate(schedule.parts[:-1]):
        begun += count.ticks(part.length or 0, "parts", index, "over" if part.for_ is None else "for")
        joints.append(begun)
    moments = _whole(joints, ("parts",), tuple(range(1, len(parts))))
    return ScheduleDecl(kind="join", clock=schedule.clock, pace=pace, parts=parts, moments=moments)


class _Count(Struct, frozen=True, kw_only=True):
    """How lengths are counted: by which clock, at which rate."""

    clock: Clock
    rates: ClockRates

    def pace(self) -> int:
        """Return the steps of an epoch on the clock `epochs`, the samples of a step on `samples`, else 1."""
        if self.clock in ("updates", "steps"):
            return 1
        try:
            length = self.rates.length(self.clock)
        except PaceProblem as problem:
            raise problem.within(f"`clock: {self.clock}` cannot be read", ("clock",)) from problem
        return int(length if self.clock == "epochs" else 1 / length)

    def ticks(self, length: Length, *path: str | int) -> Fraction:
        """Return a length in ticks of the clock; a number is one already."""
        if not isinstance(length, Duration):
            return exact(length)
        try:
            return self.rates.convert(length, self.clock)
        except PaceProblem as problem:
            raise problem.within(f"`{length}` of a schedule cannot be counted in {self.clock}", path) from problem


def _declare_curve(curve: CurveSpec, count: _Count, path: Path, pace: int) -> ScheduleDecl:
    """Return one curve with its lengths in ticks: an int where one is whole."""
    fields: dict[str, float] = {}
    for name, value in curve.fields.items():
        if name in LENGTHS:
            ticks = count.ticks(value, *path, name)
            fields[name] = int(ticks) if ticks.denominator == 1 else float(ticks)
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


Place: TypeAlias = tuple[str | int, ...]
"""The op, and the place below it."""
TAKEN = ("tau",)
"""The place below an average of what is taken of the new; the program says what is kept of the old."""


class ScheduledField(Struct, frozen=True, kw_only=True):
    """A field of an op that holds a schedule: its place, and whose updates it counts, if it does.

    What an update does to a model by that model's word has its place below both: ``fit``, ``net``, ``regularizer``.
    """

    place: Place
    schedule: ScheduleSpec
    cells: tuple[OptimizerCell, ...]
    """Whose updates are counted, one after another; nothing where steps are."""
    path: Place
    """Where it is written."""

    def declare(self, spec: GraphSpec, pace: Pace) -> ScheduleDecl:
        """Return the schedule at the rate of what it counts; raise PaceProblem where that is unknown."""
        rates = find_clock_rates(spec, self.cells[0], pace) if self.cells else ClockRates(pace=pace)
        return declare_schedule(self.schedule, rates)


def declare_scheduled(spec: GraphSpec, pace: Pace) -> Mapping[Place, Scheduled]:
    """Return the numbers that change while training, by their places; one that cannot be counted does not change."""
    found: dict[Place, Scheduled] = {}
    for field in _find_fields(spec):
        try:
            schedule = field.declare(spec, pace)
        except PaceProblem:
            schedule = stand_in(field.schedule)
        op, *option = map(str, field.place)
        found[field.place] = Scheduled(
            op=op,
            option=".".join(option),
            schedule=schedule,
            optimizer=field.cells[0].name if field.cells else None,
            complement=field.place[1:] == TAKEN,
        )
    return found


def check_scheduled(spec: GraphSpec, pace: Pace) -> Iterator[Diagnostic]:
    """Yield E-PACE for every schedule of an op that cannot be counted by its clock."""
    for field in _find_fields(spec):
        try:
            if len(field.cells) > 1:  # others come in the place of the optimizer whose updates are counted
                message = f"the updates of an optimizer that changes at epoch {field.cells[1].epoch} are not counted on"
                raise PaceProblem(message, "write `clock: steps`", path=("clock",))
            field.declare(spec, pace)
        except PaceProblem as problem:
            yield report_pace(spec, problem, field.path)


@once_per_spec
def _find_fields(spec: GraphSpec) -> tuple[ScheduledField, ...]:
    """Return every field of an op that holds a schedule, those of constraints and regularizers by models."""
    counted: dict[str, list[OptimizerCell]] = {}
    for cell in find_optimizers(spec):
        for name in () if cell.chosen else cell.updates:  # those of groups count the same updates
            counted.setdefault(name, []).append(cell)
    found: list[ScheduledField] = []
    for name, op in spec.ops.items():
        users = tuple(counted.get(name, ()))
        for place, schedule in find_op_schedules(op):
            cells = users if schedule.clock == "updates" else ()
            found.append(
                ScheduledField(place=(name, *place), schedule=schedule, cells=cells, path=("ops", name, *place))
            )
        if not isinstance(op, UpdateOp):
            continue
        for model in op.update:
            own = tuple(cell for cell in users if model in cell.models)
            for place, schedule in find_term_schedules(spec, op, model) if own else ():
                cells = own if schedule.clock == "updates" else ()
                is_own = place[0] == "constraint" and op.constraint is not None
                path = ("ops", name, *place) if is_own else ("models", model, *place)
                found.append(ScheduledField(place=(name, model, *place), schedule=schedule, cells=cells, path=path))
    return tuple(found)


def find_scheduled(instruction: Instruction) -> Iterator[Scheduled]:
    """Yield the numbers of an instruction that change while training."""
    for setting in instruction.settings:
        each = cast("tuple[object, ...]", setting) if isinstance(setting, tuple) else (setting,)
        yield from (number for number in each if isinstance(number, Scheduled))


def find_op_schedules(op: Op) -> Iterator[tuple[Place, ScheduleSpec]]:
    """Yield every schedule of an op with its place below the op.

    Not those of an optimizer, nor those of the constraints of an update, which count updates of each model's optimizer.
    """
    if isinstance(op, ScheduleOp):
        yield (), op.curve
    else:
        found = _find_inside(op, ())
        yield from (each for each in found if not (isinstance(op, UpdateOp) and each[0][0] == "constraint"))


def find_term_schedules(spec: GraphSpec, op: UpdateOp, model: str) -> Iterator[tuple[Place, ScheduleSpec]]:
    """Yield every schedule of the constraints and regularizers with which an update steps a model.

    Its place begins with the field: ``("constraint", 0, "max_norm")``.
    """
    declared = spec.models[model]
    yield from _find_inside(op.constraint or declared.constraint or (), ("constraint",))
    yield from _find_inside(declared.regularizer or (), ("regularizer",))


PLAIN = (str, int, float, type(None))
"""What holds no schedule."""


def _find_inside(value: object, place: Place) -> Iterator[tuple[Place, ScheduleSpec]]:
    """Yield the schedules in a value: itself, or what its fields or items hold."""
    match value:
        case ScheduleSpec():
            yield place, value
        case Inputs():
            for key, operand in value.items():
                yield from _find_inside(operand, (*place, key))
        case Declaration() if not isinstance(value, OptimizerSpec):
            written = value.model_fields_set  # no default is a schedule
            for name, field in type(value).model_fields.items():
                if name in written and not isinstance(inner := getattr(value, name), PLAIN):
                    yield from _find_inside(inner, (*place, field.alias or name))
        case Mapping():
            for key, item in cast("Mapping[str, object]", value).items():
                yield from _find_inside(item, (*place, key))
        case list() | tuple():
            for index, item in enumerate(cast("Sequence[object]", value)):
                yield from _find_inside(item, (*place, index))
        case _:  # a number, a word or an optimizer, whose schedules are listed elsewhere
            return
