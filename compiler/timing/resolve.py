"""Timing: a spec with every start and end in steps and every half-life in updates, as the pace of a run gives them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Literal, TypeAlias

from msgspec import Struct

from compiler.ir.diagnose import span_of
from compiler.ir.program import Gate, Mode
from compiler.passes.datasets import has_ends
from compiler.passes.freeze import has_freezes
from compiler.timing.curves import check_schedules
from compiler.timing.period import (
    FiringPeriod,
    find_firing_period,
    find_model_writers,
    find_skippable,
    find_source,
    find_writes,
)
from compiler.timing.phases import has_phases
from compiler.timing.units import ClockRates, Pace, PaceProblem, complete_pace, exact
from graphspec.declare.durations import Duration, Start
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import EmaOp, MetricOp, Op, UpdateOp
from graphspec.diagnostics import Diagnostic
from graphspec.read.source import Path

Reset: TypeAlias = Literal["epoch", "never", "step"] | int


def find_reset(op: MetricOp, mode: Mode, pace: Pace) -> Reset:
    """Return when the running value of a metric resets, or after how many steps of a mode.

    What is counted in epochs, samples or runs is a stretch of the training; in other modes a pass over their data is
    all there is. A stretch that cannot be counted is an epoch; :func:`check_resets` reports it.
    """
    if isinstance(op.reset, str):
        return op.reset
    if op.reset.unit == "steps":
        return int(op.reset.count)
    try:
        return _count_steps(op, pace) if mode == "train" else "epoch"
    except PaceProblem:
        return "epoch"


def check_resets(spec: GraphSpec, pace: Pace) -> Iterator[Diagnostic]:
    """Yield E-PACE for every metric that resets after a stretch that cannot be counted."""
    for name, op in spec.ops.items():
        if not isinstance(op, MetricOp) or not op.runs_in("train"):
            continue
        try:
            _count_steps(op, pace)
        except PaceProblem as problem:
            yield Diagnostic(
                code="E-PACE",
                message=f"`reset: {op.reset}` of '{name}' cannot be counted: {problem.message}",
                span=spec.span("ops", name, "reset"),
                notes=problem.notes(spec),
                is_pending=problem.is_pending,
                help=problem.remedy(spec),
            )


def _count_steps(op: MetricOp, pace: Pace) -> int:
    """Return the whole steps of a stretch, rounded up; 1 where it is given as a word."""
    return 1 if isinstance(op.reset, str) else math.ceil(ClockRates(pace=pace).steps(op.reset))


Field: TypeAlias = Literal["start", "until", "half_life", "over", "every"]
NATIVE: Mapping[Field, str] = {
    "start": "steps",
    "until": "steps",
    "half_life": "updates",
    "over": "updates",
    "every": "updates",
}
"""The unit in which the passes read a field."""
IN_WRITES: frozenset[Field] = frozenset({"half_life", "over", "every"})
"""The fields that count the writes of a source."""


class Timed(Struct, frozen=True, kw_only=True):
    """A spec whose durations are in the units of the passes, and what could not be counted (and is left out)."""

    spec: GraphSpec
    problems: tuple[Diagnostic, ...] = ()


def apply_pace(spec: GraphSpec, pace: Pace) -> Timed:
    """Return the spec resolved at a pace; the same object where nothing depends on one.

    Problems are E-PACE, and GS120 for an op that never runs at this pace.
    """
    steps = _rewrite(spec, pace, in_updates=False)
    updates = _rewrite(steps.spec, pace, in_updates=True)
    problems = [*steps.problems, *updates.problems]
    kept: dict[str, Op] = {}
    for name, op in updates.spec.ops.items():
        kept[name], written = op, spec.ops[name]
        is_counted = "updates" in (op.start and op.start.unit, op.until and op.until.unit)
        first = 1 if op.start is None else int(op.start.count)
        last = None if op.until is None or written is op or is_counted else int(op.until.count)
        if last is not None and last < first:
            kept[name] = op.model_copy(update={"until": None})
            problem = Diagnostic(
                code="GS120",
                message=f"op '{name}' never runs: it starts at step {first} and ends with step {last}",
                span=span_of(spec, name, "until"),
                notes=(f"`until: {written.until}` is step {last}",),
                help="both count from 1, and `until` is the last step it runs in",
            )
            problems.append(problem)
    is_idle = any(kept[name] is not op for name, op in updates.spec.ops.items())
    timed = updates.spec.model_copy(update={"ops": kept}) if is_idle else updates.spec
    return Timed(spec=timed, problems=tuple(problems))


def needs_pace(spec: GraphSpec) -> bool:
    """Return whether something can only be counted with a pace that the spec alone does not give."""
    known = complete_pace(spec, None)
    timed = apply_pace(spec, known)
    if has_phases(spec) or has_freezes(spec) or has_ends(spec) or any(True for _ in check_resets(spec, known)):
        return True
    return bool(timed.problems) or any(True for _ in check_schedules(timed.spec, known))


def check_modes(spec: GraphSpec, mode: str, gates: tuple[Gate, ...]) -> Iterator[Diagnostic]:
    """Yield E-PACE for an op that fires in a mode without training by moments of the training, which it cannot know."""
    timed = (
        gate.op
        for gate in gates
        if gate.op in spec.ops
        and mode != "train"
        and (gate.start is not None or gate.until is not None or gate.is_counted)
    )
    for name in timed:
        op = spec.ops[name]
        for field in ("start", "until"):
            duration = _duration(op, field)
            if duration is not None and duration.unit != "steps":
                yield Diagnostic(
                    code="E-PACE",
                    message=f"`{field}: {duration}` of '{name}' is a point in the training, "
                    f"but '{name}' also runs in {mode} mode, which counts its own steps",
                    span=span_of(spec, name, field),
                    help="write `mode: train` on it, or count the steps of each mode: `1000 steps`",
                )


def _rewrite(spec: GraphSpec, pace: Pace, *, in_updates: bool) -> Timed:
    """Count all fields that are in updates, or all others: the period of updates depends on their starts."""
    ops: dict[str, Op] = {}
    problems: list[Diagnostic] = []
    for name, op in spec.ops.items():
        for field, unit in NATIVE.items():
            duration = _duration(op, field)
            if duration is None or (duration.unit == unit and field != "every"):
                continue
            if (duration.unit == "updates" or field in IN_WRITES) == in_updates:
                found = _count(spec, name, field, duration, pace)
                if isinstance(found, Diagnostic):
                    # Without what cannot be counted other problems can still be found; an average needs its half-life.
                    problems.append(found)
                    found = duration if field in ("half_life", "over") else None
                if found is not duration:
                    ops[name] = _put(ops.get(name, op), field, found)
    changed = {name: ops.get(name, op) for name, op in spec.ops.items()}
    return Timed(spec=spec.model_copy(update={"ops": changed}) if ops else spec, problems=tuple(problems))


def _duration(op: Op, field: Field) -> Duration | None:
    """Return a duration of an op."""
    match field:
        case "start":
            return op.start
        case "until":
            return op.until
        case "half_life":
            return op.halving if isinstance(op, EmaOp) else None
        case "over":
            over = op.formula.over if isinstance(op, EmaOp) and op.formula is not None else None
            return over if isinstance(over, Duration) else None
        case "every":
            return op.every if isinstance(op.every, Duration) else None


def _put(op: Op, field: Field, found: Duration | None) -> Op:
    """Return an op with a duration in the unit of the passes; an interval is a number there."""
    if field == "over" and isinstance(op, EmaOp) and op.formula is not None:
        return op.model_copy(update={"decay": op.formula.model_copy(update={"over": found})})
    return op.model_copy(update={field: int(found.count) if field == "every" and found is not None else found})


def _count(spec: GraphSpec, name: str, field: Field, duration: Duration, pace: Pace) -> Duration | Diagnostic:
    """Return a duration in the unit of the passes, or the problem that it cannot be counted.

    A start or end in updates stays as it is where no step number is the same: the run counts.
    """
    rates, op = ClockRates(pace=pace), spec.ops[name]
    is_inner = field == "over" or (field == "half_life" and isinstance(op, EmaOp) and op.half_life is None)
    place: Path = ("decay", field) if is_inner else (field,)
    try:
        if field in IN_WRITES:
            # An average counts the writes of its source.
            source = find_source(op) or ""
            period = find_writes(spec, source, epoch=pace.epoch)
            rates = ClockRates(
                pace=pace,
                interval=None if period is None else Fraction(period.every),
                missing=f"how many steps lie between two writes of '{source}', which is not constant",
                help="count updates: `500 updates`",
            )
            writes = rates.convert(duration, "updates")
            if field == "every" and (writes.denominator != 1 or writes < 1):
                message = f"it is {float(writes):g} writes of '{source}'"
                raise PaceProblem(message, "write a whole number of writes: `every: 10`")
            return Duration(count=float(writes), unit="updates")
        if duration.unit == "updates":
            period = _find_counted(spec, name, field)
            if period is None and isinstance(duration, Start) and duration.before == "copy":
                message = "updates that may be skipped are counted by the run, and until then it is a copy"
                raise PaceProblem(message, "count steps, or write `before: hold`")
            if period is None:
                return duration
            step = period.step(int(duration.count))
        elif field == "start":
            # The first step of epoch 3, the one with sample 1000, the one after a share of the run. 2.5 epochs lie in
            # the middle of epoch 2, which goes from 2 to 3.
            begun = exact(duration.count) - (0 if duration.unit == "run" else 1)
            step = math.floor(begun * rates.length(duration.unit)) + 1
        else:
            step = math.floor(rates.steps(duration))
        return replace(duration, count=step, unit="steps")
    except PaceProblem as problem:
        return Diagnostic(
            code="E-PACE",
            message=f"`{field}: {duration}` of '{name}' cannot be counted: {problem.message}",
            span=span_of(spec, name, *place),
            notes=problem.notes(spec),
            is_pending=problem.is_pending,
            help=problem.remedy(spec),
        )


def _find_counted(spec: GraphSpec, name: str, field: Field) -> FiringPeriod | None:
    """Return the period of the updates that a start or end of an op counts: its own, or those of its source.

    None where they have no constant one, or may be skipped.
    """
    op = spec.ops[name]
    source = find_source(op)
    help = "count steps: `1000 steps`"
    if isinstance(op, UpdateOp) and field == "start":
        raise PaceProblem("an update cannot wait for its own updates", help)
    if source is None and not isinstance(op, UpdateOp):
        raise PaceProblem(f"the op '{name}' applies no updates and follows none", help)
    if find_skippable(spec, (name,) if source is None else find_model_writers(spec, source)) is not None:
        return None
    return find_firing_period(spec, name) if source is None else find_writes(spec, source)
