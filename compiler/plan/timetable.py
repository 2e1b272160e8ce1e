"""The timetable of a plan in words: schedules with their clocks, and the steps in which ops start and end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, cast

from msgspec import Struct

from compiler.facts.optimizers import find_optimizers
from compiler.ir.instructions import Apply
from compiler.ir.program import Gate, OptimizerDecl, Program, window_of
from compiler.ir.value import ScheduleDecl
from compiler.passes.datasets import WORDS
from compiler.passes.freeze import find_freeze_gate, find_freezes
from compiler.plan.compiled_step import CompiledStep
from compiler.timing.curves import UNKNOWN, find_scheduled
from graphspec.declare.decays import DecayKind
from graphspec.declare.durations import Duration, Length
from graphspec.declare.ops import UpdateOp
from graphspec.declare.schedules import LENGTHS, PartSpec, ScheduleSpec

FORMULAS: Mapping[DecayKind, str] = {
    "tf": "min(max, (1 + n)/(10 + n))",
    "tf_warm": "a copy, then n/(9 + n) within min and max",
    "inverse_power": "a copy, then 1 - (1 + (n - 1)/gamma)^-power within min and max",
    "exp_ramp": "max (1 - exp(-n/tau))",
    "anneal": "min(max, (n - 1)/(gamma + n - 1))",
    "power": "(1 - 1/n)^(gamma + 1)",
    "uniform": "(n - 1)/n",
    "hard": "0 at every multiple, else 1",
}
"""What averages keep, by kind; n counts the writes of the source, for uniform what was averaged."""
UNCOUNTED = "(not counted yet)"
"""Follows what the spec writes where a length is missing that only a run knows."""


class Entry(Struct, frozen=True, kw_only=True):
    """One schedule of a mode: of which optimizer or op, of which option or field of it, if not of all of it."""

    owner: Literal["optimizer", "op"]
    name: str
    option: str
    schedule: ScheduleDecl
    counted: str = ""
    """The optimizer whose updates an op's schedule counts."""


def find_applied(program: Program, mode: str) -> tuple[OptimizerDecl, ...]:
    """Return the optimizers that a mode applies."""
    applied = set[str]()
    for function in program.mode(mode).functions:
        for each in function.instructions:
            if isinstance(each, Apply):
                applied.update(part.optimizer for part in each.parts)
    return tuple(each for each in program.optimizers if each.name in applied)


def find_schedules(program: Program, mode: str) -> Iterator[Entry]:
    """Yield the schedules of the optimizers that a mode applies, then those of its ops."""
    for optimizer in find_applied(program, mode):
        known = ((option, value) for option, value in optimizer.schedules.items() if value is not UNKNOWN)
        for option, value in known:
            yield Entry(owner="optimizer", name=optimizer.name, option=option, schedule=value)
    instructions = (each for function in program.mode(mode).functions for each in function.instructions)
    numbers = {each.name: each for instruction in instructions for each in find_scheduled(instruction)}
    numbers = {name: each for name, each in numbers.items() if each.schedule is not UNKNOWN}
    for number in numbers.values():
        counted = number.optimizer or ""
        yield Entry(owner="op", name=number.op, option=number.option, schedule=number.schedule, counted=counted)


def format_entry(entry: Entry) -> str:
    """Return a schedule and what it counts in words; nothing is counted where a length is not known yet."""
    if entry.schedule.uncounted is not None:
        return format_schedule(entry.schedule)
    of = f" by the optimizer of {entry.counted}" if entry.counted else ""
    return f"{format_schedule(entry.schedule)} (counts {format_clock(entry.schedule)}{of}, from 0)"


def format_schedule(schedule: ScheduleDecl) -> str:
    """Return a schedule in words: `cosine from 0.001 to 0 over 3000 updates`."""
    if schedule.uncounted is not None:
        return f"{_format_written(schedule.uncounted)} {UNCOUNTED}"
    if not schedule.parts:
        return _format_declared(schedule, schedule.clock)
    first, *others = (_format_declared(part, schedule.clock) for part in schedule.parts)
    later = (f"from {begin} {schedule.clock} on {part}" for begin, part in zip(schedule.moments, others, strict=True))
    return "; ".join((first, *later))


def format_clock(schedule: ScheduleDecl) -> str:
    """Return what a schedule counts, in words."""
    match schedule.clock:
        case "updates":
            return "updates applied"
        case "steps":
            return "train steps"
        case "samples":
            return f"samples, {schedule.pace} in a train step"
        case "epochs":
            return f"epochs finished, {schedule.pace} train steps each"
        case "writes":
            return "writes of the source"


def describe_moments(plan: CompiledStep, mode: str) -> Iterator[str]:
    """Yield the step of every start and end that the spec gives in another unit."""
    every = "the end of every epoch" if plan.pace.epoch is None else f"every {plan.pace.epoch} steps"
    for name, op in plan.spec.ops.items() if mode == "train" else ():
        if isinstance(op, UpdateOp) and op.at_epoch_end != "carry":
            yield f"{name} {WORDS[op.at_epoch_end]} an open window at {every} (on_epoch_end: {op.at_epoch_end})"
    for freeze in find_freezes(plan.spec) if mode == "train" else ():
        gate = find_freeze_gate(plan.spec, freeze, plan.pace)
        if gate is not None:
            yield f"'{freeze.match}' of {freeze.model} is frozen {format_end(gate)} (until: {freeze.until})"
    windows = {window_of(name): name for name in plan.spec.ops}
    phases = {cell.name: cell.owner for cell in find_optimizers(plan.spec) if cell.epoch > 1}
    for gate in plan.program.mode(mode).gates:
        name = windows.get(gate.op, gate.op)
        op = plan.spec.ops.get(name)
        if op is None:
            if gate.op in phases:
                yield f"{gate.op} steps from step {gate.start} on: it takes the place of {phases[gate.op]}"
            continue
        if gate.start is not None and op.start is not None and op.start.unit != "steps":
            yield f"{name} starts at step {gate.start} (start: {op.start})"
        if gate.until is not None and op.until is not None and op.until.unit != "steps":
            yield f"{name} ends with step {gate.until} (until: {op.until})"
        if gate.is_counted:
            yield f"{name} {format_counted(gate)}"


def format_end(gate: Gate) -> str:
    """Return until when a gate is open, in words."""
    return f"through step {gate.until}" if gate.last is None else f"until {_format_updates(gate, gate.last)}"


def format_counted(gate: Gate) -> str:
    """Return when a gate starts or ends that counts updates while the step runs, in words."""
    starts = () if gate.first is None else (f"starts with {_format_updates(gate, gate.first)}",)
    ends = () if gate.last is None else (f"ends with {_format_updates(gate, gate.last)}",)
    return f"{' and '.join((*starts, *ends))}; skipped ones do not count"


def _format_updates(gate: Gate, count: int) -> str:
    return f"update {count} by {' or '.join(gate.counted)}"


def _format_declared(curve: ScheduleDecl, unit: str) -> str:
    """Return a curve in words, its lengths in a unit."""
    fields = {name: f"{value:.6g}" for name, value in curve.fields.items()}
    if curve.kind in FORMULAS and unit == "writes":
        given = f", {', '.join(f'{name} {value}' for name, value in fields.items())}" if fields else ""
        return f"{FORMULAS[cast('DecayKind', curve.kind)]}{given}"
    fields |= {name: f"{fields[name]} {unit}" for name in LENGTHS if name in fields}
    first, *later = curve.values or (0.0,)
    values = ((f"{at} {unit}", value) for at, value in zip(curve.moments, later, strict=True))
    return _format_curve(curve.kind, fields, first, values)


def _format_written(schedule: ScheduleSpec) -> str:
    """Return a schedule in words, its lengths as they are written; a number counts ticks of its clock."""

    def measure(length: Length) -> str:
        """Return a length with its unit."""
        return str(length) if isinstance(length, Duration) else f"{length:.6g} {schedule.clock}"

    texts: list[str] = []
    for curve in schedule.parts or (schedule,):
        fields = {
            name: measure(value) if name in LENGTHS or isinstance(value, Duration) else f"{value:.6g}"
            for name, value in curve.fields.items()
        }
        (_, first), *later = curve.moments or ((0, 0.0),)
        text = _format_curve(curve.schedule, fields, first, ((measure(at), value) for at, value in later))
        lasts = curve.for_ if isinstance(curve, PartSpec) else None
        texts.append(text if lasts is None else f"{text}, for {measure(lasts)}")
    return "; then ".join(texts)


def _format_curve(kind: str, fields: Mapping[str, str], first: float, later: Iterable[tuple[str, float]]) -> str:
    """Return a curve in words: numbers as texts, lengths with units, and the values of piecewise with their moments."""
    match kind:
        case "constant":
            return f"constant {fields['value']}"
        case "exponential":
            return f"exponential from {fields['from']}, times {fields['rate']} per {fields['per']}"
        case "step":
            return f"step from {fields['from']}, times {fields['factor']} every {fields['every']}"
        case "piecewise":
            return ", ".join((f"piecewise {first:g}", *(f"{value:g} from {at} on" for at, value in later)))
        case _:
            way = f"{kind} from {fields['from']} to {fields['to']} over {fields['over']}"
            return way if "power" not in fields else f"{way}, power {fields['power']}"
