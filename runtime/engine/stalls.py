"""Averages that cannot move: the share that they take of the new is below the resolution of their type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from compiler.ir.instructions import Blend
from compiler.ir.program import Program
from compiler.ir.value import Scheduled
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from runtime.codegen.resources import find_instructions

DIGITS: Mapping[str, int] = {"float64": 52, "float32": 23, "float16": 10, "bfloat16": 7}
"""The binary digits after the point of a floating-point number."""
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
        gap = 0.0 if kept is None or kept == 1 else 2.0 ** -DIGITS[held] / 1.5 / (2 * (1 - kept))
        if gap >= WIDEST_GAP and blend.rounding == "nearest":
            narrow = held not in ("float32", "float64")
            remedies = (
                ["remove `dtype`", "write `rounding: stochastic`"] if narrow else ['`build(..., dtype="float64")`']
            )
            yield Diagnostic(
                code="GS276",
                message=f"the average '{op}' cannot move in {held}: it keeps {kept:.9g} of the old, and a weight that "
                f"differs from it by less than {gap:.2g} of its size changes nothing",
                span=spec.span("ops", op, key=True),
                label=f"relative gap {gap:.2g}",
                help=f"{', or '.join(remedies)}, or take more of the new: a lower decay, or fewer writes with `every`",
            )


def find_lasting(blend: Blend) -> float | None:
    """Return what an average keeps for good; None where it changes for ever, or ends by keeping all."""
    if not isinstance(blend.decay, Scheduled):
        return blend.decay
    if blend.decay.schedule.clock != "writes":
        return None
    fields, progress = blend.decay.schedule.fields, blend.progress
    lasting = next((fields[name] for name in ("value", "max", "to") if name in fields), None)
    return lasting if lasting is None or progress is None or not progress.compounds else lasting**progress.every
