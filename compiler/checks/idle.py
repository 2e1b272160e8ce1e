"""Check of writes that no step of a run reaches: GS120."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from compiler.ir.diagnose import span_of
from compiler.ir.program import Gate
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import AssignOp, CopyOp, EmaOp, UpdateOp
from graphspec.diagnostics import Diagnostic


def check_idle(spec: GraphSpec, gates: Iterable[Gate], firing: Iterable[Gate]) -> Iterator[Diagnostic]:
    """Yield GS120 for every write that fires in no step of training, though what it follows does in some.

    ``gates`` are all of the mode, ``firing`` those that open in some step.
    """
    open_ops = {gate.op for gate in firing}
    idle = [gate for gate in gates if gate.op not in open_ops]
    never = {gate.op for gate in idle}
    for gate in idle:
        op = spec.ops.get(gate.op)
        if not isinstance(op, UpdateOp | EmaOp | CopyOp | AssignOp) or any(map(never.issuperset, gate.follows)):
            continue
        if isinstance(op, UpdateOp) and op.at_epoch_end == "drop" and op.until is None:
            field, why = "accumulate", f"an epoch ends before its window of {op.window} steps is full, and discards it"
            help = "write `on_epoch_end: carry` or `flush`, or make the window shorter"
        else:
            field = "until" if op.until is not None else "every"
            why = "there is no step in which its clock and what it follows admit it"
            help = "look at `every`, `start`, `until` and `accumulate`, its own and those of what it follows"
        message = f"op '{gate.op}' never runs: {why}"
        yield Diagnostic(code="GS120", message=message, span=span_of(spec, gate.op, field), help=help)
