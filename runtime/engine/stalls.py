"""Averages that cannot move: the share that they take of the new is below the resolution of their type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from compiler.ir.instructions import Blend
from compiler.ir.program import Program
from compiler.ir.value import Scheduled, ScheduleDecl
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from runtime.codegen.resources import find_instructions

DIGITS: Mapping[str, int] = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}
"""The binary digits after the point of a floating-point number."""
BETWEEN = frozenset({"constant", "cosine", "linear", "polynomial"})
"""The curves that stay between the numbers that are written."""
ENDING = BETWEEN | {"warmup"}
"""The curves that stay at their last number."""
WIDEST_GAP = 0.1
"""The relative gap between weights and average that an average must see: weights hardly ever change by more."""


def find_stalls(program: Program, spec: GraphSpec, dtype: str) -> Iterator[Diagnostic]:
    """Yield GS276 for every average that stays as it is, however it is written, in a step whose parameters have a type.

    What lerp adds is lost where |w - e| < ulp(e) / (2 (1 - d)); for e in the middle between two powers of 2 the
    relative gap is 2^-digits / 1.5 / (2 (1 - d)).
    """
    blends = {each.op: each for each in find_instructions(program) if isinstance(each, Blend)}
    for op, blend in blends.items():
        held, kept = blend.dtype or dtype, find_lasting(blend)
        if kept is None or kept == 1:  # it may move at first, or now and then
            kept = find_least(blend)
        gap = 0.0 if kept is None or kept == 1 else 2.0 ** -DIGITS[held] / 1.5 / (2 * (1 - kept))
        if gap >= WIDEST_GAP and blend.rounding == "nearest":
            remedies = ["remove `dtype`", "write `rounding: stochastic`"] if blend.dtype else []
            remedies += ['`build(..., dtype="float64")`'] if dtype != "float64" and not blend.dtype else []
            more = "a lower decay, or fewer writes with `every` and `interval_correction: compound`"
            yield Diagnostic(
                code="GS276",
                message=f"the average '{op}' cannot move in {held}: it keeps {kept:.9g} of the old, and a weight that "
                f"differs from it by less than {gap:.2g} of its size changes nothing",
                span=spec.span("ops", op, key=True),
                label=f"relative gap {gap:.2g}",
                help=", or ".join([*remedies, f"take more of the new: {more}"]),
            )


def find_lasting(blend: Blend) -> float | None:
    """Return what an average keeps for good; None where it changes for ever, or ends by keeping all."""
    if not isinstance(blend.decay, Scheduled):
        return blend.decay
    if blend.decay.schedule.clock != "writes":
        end = _find_end(blend.decay.schedule)
        return None if end is None else 1 - end if blend.decay.complement else end
    fields, progress = blend.decay.schedule.fields, blend.progress
    lasting = next((fields[name] for name in ("value", "max", "to") if name in fields), None)
    return lasting if lasting is None or progress is None or not progress.compounds else lasting**progress.every


def _find_end(schedule: ScheduleDecl) -> float | None:
    """Return the number at which a curve stays once it has ended; None of one that does not end, or is not known."""
    if schedule.kind == "join":
        return _find_end(schedule.parts[-1])
    if schedule.kind == "piecewise":
        return schedule.values[-1]
    is_known = schedule.kind in ENDING and schedule.uncounted is None
    return (
        next((schedule.fields[name] for name in ("value", "to") if name in schedule.fields), None) if is_known else None
    )


def find_least(blend: Blend) -> float | None:
    """Return the least that an average ever keeps of the old; None where its decay begins low, or is not known."""
    if not isinstance(blend.decay, Scheduled):
        return blend.decay
    found = _find_range(blend.decay.schedule)
    return None if found is None else 1 - found[1] if blend.decay.complement else found[0]


def _find_range(schedule: ScheduleDecl) -> tuple[float, float] | None:
    """Return the least and the greatest number of a curve between its ends; None of another curve."""
    if schedule.kind == "join":
        ranges = [_find_range(part) for part in schedule.parts]
        known = [each for each in ranges if each is not None]
        numbers = [number for each in known for number in each] if len(known) == len(ranges) else []
    elif schedule.kind == "piecewise":
        numbers = [*schedule.values]
    elif schedule.kind in BETWEEN and schedule.uncounted is None:
        numbers = [schedule.fields[name] for name in ("value", "from", "to") if name in schedule.fields]
    else:
        numbers = []
    return (min(numbers), max(numbers)) if numbers else None
