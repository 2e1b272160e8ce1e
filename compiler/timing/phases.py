"""Phases of optimizers: at which steps one takes the place of another, where they change by epochs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from compiler.facts.optimizers import OptimizerCell, find_optimizers
from compiler.ir.instructions import Instruction
from compiler.ir.program import Gate, Mode
from compiler.timing.units import Pace, PaceProblem, Tempo
from graphspec.declare.durations import Duration
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic


def find_phase_gates(spec: GraphSpec, mode: Mode, nodes: Mapping[str, Instruction], pace: Pace) -> tuple[Gate, ...]:
    """Return the gate of every optimizer that steps at a later epoch: it is open from its first step to its last.

    Those that cannot be counted are left out; :func:`check_phases` reports them.
    """
    applied = {node.op for node in nodes.values() if node.eager}
    if pace.epoch is None or mode != "train":
        return ()
    return tuple(
        Gate(op=cell.name, start=_first_step(cell.epoch, pace.epoch), until=_last_step(cell.until, pace.epoch))
        for cell in find_optimizers(spec)
        if cell.epoch > 1 and not applied.isdisjoint(cell.updates)
    )


def map_cells(spec: GraphSpec, fired: Collection[str]) -> Mapping[str, str]:
    """Return, for every optimizer of the first epoch, the one in its place, given the gates that are open."""
    return {cell.owner: cell.name for cell in find_optimizers(spec) if cell.epoch > 1 and cell.name in fired}


def has_phases(spec: GraphSpec) -> bool:
    """Return whether some optimizer changes by epochs."""
    return any(cell.epoch > 1 for cell in find_optimizers(spec))


def check_phases(spec: GraphSpec, pace: Pace) -> Iterator[Diagnostic]:
    """Yield E-PACE for every optimizer that changes at an epoch whose first step is not known."""
    for cell in find_optimizers(spec):
        problem = _find_problem(spec, cell, pace) if cell.epoch > 1 else None
        if problem is not None:
            yield Diagnostic(
                code="E-PACE",
                message=f"the optimizer of '{cell.owner}' changes at epoch {cell.epoch}, which cannot be counted: "
                f"{problem.message}",
                span=spec.span(*cell.path, key=True),
                notes=problem.notes(spec),
                is_pending=problem.is_pending,
                help=problem.help,
            )


def _find_problem(spec: GraphSpec, cell: OptimizerCell, pace: Pace) -> PaceProblem | None:
    """Return why the steps of an optimizer cannot be counted; None where they can."""
    elsewhere = [name for name in cell.updates if spec.ops[name].mode not in (None, ("train",))]
    if elsewhere:
        message = f"'{elsewhere[0]}' also runs in modes that count steps of their own"
        return PaceProblem(message, "write `mode: train` on it, or use one optimizer")
    try:
        Tempo(pace=pace).steps(Duration(count=cell.epoch - 1, unit="epochs"))
    except PaceProblem as problem:
        help = "declare `data: {train: ...}` with a source of known length"
        return PaceProblem(problem.message, help, unit=problem.unit)
    return None


def _first_step(epoch: int, length: int) -> int:
    """Return the first step of an epoch, both counted from 1."""
    return (epoch - 1) * length + 1


def _last_step(epoch: int | None, length: int) -> int | None:
    """Return the last step of an epoch; None for that which never ends."""
    return None if epoch is None else epoch * length
