"""What a mode other than train does not return, or not on every batch, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from compiler.ir.instructions import Emit
from compiler.ir.program import Mode
from compiler.plan.compiled_step import CompiledStep
from compiler.plan.reachable_functions import describe_steps
from graphspec.analysis.modes import find_makers, find_reaches
from graphspec.analysis.scope import list_reported
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import MODES, LossOp


def list_left_out(plan: CompiledStep, mode: str) -> Iterator[str]:
    """Yield a sentence for every value that the spec asks for and that steps of a mode do without."""
    program = plan.program.mode(mode)
    if program.mode == "train":
        return
    functions, steps = program.functions, describe_steps(program, plan.program)
    for value, owner in _find_wanted(plan.spec).items():
        why = find_absence(plan.spec, owner, program.mode)
        among = [
            each.name
            for each in functions
            if any(value in emit.values for emit in each.instructions if isinstance(emit, Emit))
        ]
        if not among and why:
            yield f"{value}: {why}"
        elif among and len(among) < len(functions):
            written = plan.spec.ops[owner].every
            clock = f" (`every: {written}`)" if isinstance(written, int) else ""
            yield f"{value}: returned in {' and '.join(steps.get(name, name) for name in among)} alone{clock}"


def find_absence(spec: GraphSpec, op: str, mode: Mode) -> str:
    """Return why an op does not run in a mode; empty where it may, or where the spec does not ask for its value."""
    blocker = find_reaches(spec)[op].blockers.get(mode)
    if blocker is None and spec.outputs is None and isinstance(spec.ops[op], LossOp) and mode != "train":
        return "is a loss, which only train mode returns where there are no `outputs`"
    if blocker is None or op not in _find_wanted(spec).values():
        return ""
    modes = " and ".join(each for each in MODES if spec.ops[blocker].runs_in(each))
    return f"runs in {modes} mode" if blocker == op else f"needs '{blocker}', which runs in {modes} mode"


def _find_wanted(spec: GraphSpec) -> Mapping[str, str]:
    """Return the values that a step may return, and their ops: the outputs, else losses and metrics."""
    makers = find_makers(spec)
    if spec.outputs is not None:
        return {value: makers[value] for value in spec.outputs if value in makers}
    reported = frozenset(list_reported(spec))
    return {value: name for value, name in makers.items() if name in reported}
