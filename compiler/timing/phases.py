"""Phases of optimizers: at which steps one takes the place of another, where they change by epochs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from compiler.facts.optimizers import find_optimizers
from compiler.ir.instructions import Instruction
from compiler.ir.program import Gate, Mode
from compiler.timing.units import ClockRates, Pace, PaceProblem
from graphspec.declare.durations import Duration
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic


def find_phase_gates(spec: GraphSpec, mode: Mode, nodes: Mapping[str, Instruction], pace: Pace) -> tuple[Gate, ...]:
    """Return the gate of every optimizer that steps at a later epoch: it is open from its first step to its last.

    Those that cannot be counted are left out; :func:`check_phases` reports them.
    """
    applied = {node.op for node in nodes.values() if node.is_write}
    gates: list[Gate] = []
    for cell in find_optimizers(spec) if pace.epoch is not None and mode == "train" else ():
        if pace.epoch is not None and cell.epoch > 1 and not applied.isdisjoint(cell.updates):
            first = (cell.epoch - 1) * pace.epoch + 1
            gates.append(Gate(op=cell.name, start=first, until=None if cell.until is None else cell.until * pace.epoch))
    return tuple(gates)


def map_cells(spec: GraphSpec, fired: Collection[str]) -> Mapping[str, str]:
    """Return, for every optimizer of the first epoch, the one in its place, given the gates that are open."""
    return {cell.owner: cell.name for cell in find_optimizers(spec) if cell.epoch > 1 and cell.name in fired}


def has_phases(spec: GraphSpec) -> bool:
    """Return whether some optimizer changes by epochs."""
    return any(cell.epoch > 1 for cell in find_optimizers(spec))


def check_phases(spec: GraphSpec, pace: Pace) -> Iterator[Diagnostic]:
    """Yield E-PACE for every optimizer that changes at an epoch whose first step is not known."""
    for cell in find_optimizers(spec):
        if cell.epoch == 1:
            continue
        elsewhere = [name for name in cell.updates if spec.ops[name].mode not in (None, ("train",))]
        try:
            if elsewhere:
                message = f"'{elsewhere[0]}' also runs in modes that count their own steps"
                raise PaceProblem(message, "write `mode: train` on it, or use one optimizer")
            ClockRates(pace=pace).steps(Duration(count=cell.epoch - 1, unit="epochs"))
        except PaceProblem as problem:
            change = f"the optimizer of '{cell.owner}' changes at epoch {cell.epoch}"
            if problem.is_pending:  # it cannot count steps in place of epochs
                problem = PaceProblem(problem.message, "", unit=problem.unit)
            yield Diagnostic(
                code="E-PACE",
                message=f"{change}, which cannot be counted: {problem.message}",
                span=spec.span(*cell.path, key=True),
                notes=problem.notes(spec),
                is_pending=problem.is_pending,
                help=problem.remedy(spec),
            )
