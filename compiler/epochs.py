"""Ends of epochs: gates that have to do with them, and what cannot be counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from compiler.pace import Pace, PaceProblem, Tempo
from compiler.program import Gate
from graphspec.datasets import find_datasets, find_places, find_possible
from graphspec.diagnostics import Diagnostic
from graphspec.durations import Duration
from graphspec.graph import GraphSpec
from graphspec.ops import UpdateOp

WORDS = {"flush": "applies", "drop": "forgets"}
"""What an update does with an open window at the end of an epoch."""


def time_windows(gates: Iterable[Gate], spec: GraphSpec, epoch: int | None) -> Iterator[Gate]:
    """Yield gates with the length of an epoch where windows begin anew with each; what cannot be counted is left out.

    :func:`check_windows` tells of that.
    """
    for gate in gates:
        op = spec.ops.get(gate.op)
        if isinstance(op, UpdateOp) and op.at_epoch_end != "carry":
            yield replace(gate, epoch=epoch, flush=epoch is not None and op.at_epoch_end == "flush")
        elif gate.clock != "epochs":
            yield gate
        elif epoch is not None:
            yield replace(gate, epoch=epoch)


def has_ends(spec: GraphSpec) -> bool:
    """Return whether some window does not go on into the next epoch."""
    return any(isinstance(op, UpdateOp) and op.at_epoch_end != "carry" for op in spec.ops.values())


def check_windows(spec: GraphSpec, pace: Pace) -> Iterator[Diagnostic]:
    """Yield E-PACE for every update whose window ends with an epoch, where nobody knows when that is.

    Yield GS045 for one that does not run on every data set, and where gradients are judged.
    """
    for name, op in spec.ops.items():
        if isinstance(op, UpdateOp) and op.at_epoch_end != "carry":
            yield from _refuse(spec, name)
        problem = _find_problem(name, op, pace) if isinstance(op, UpdateOp) and op.at_epoch_end != "carry" else None
        if problem is not None and isinstance(op, UpdateOp):
            done = WORDS[op.at_epoch_end]
            yield Diagnostic(
                code="E-PACE",
                message=f"'{name}' {done} what it has gathered at the end of an epoch, which cannot be counted: "
                f"{problem.message}",
                span=spec.span("ops", name, "accumulate", "on_epoch_end"),
                notes=problem.notes(spec),
                help=problem.help,
            )


def _refuse(spec: GraphSpec, name: str) -> Iterator[Diagnostic]:
    """Yield the refusal of a window that ends with an epoch, where that does not go with the rest of the spec."""
    places = find_places(spec.ops, find_datasets(spec))
    reasons = {
        "of an update that does not run on every data set": not places[name].issuperset(find_possible(spec, "train")),
    }
    for reason in (each for each, is_so in reasons.items() if is_so):
        yield Diagnostic(
            code="GS045",
            message=f"`on_epoch_end` of '{name}', {reason}, is part of the language but not built yet",
            span=spec.span("ops", name, "accumulate", "on_epoch_end"),
            help="a window goes on into the next epoch: `on_epoch_end: carry`",
        )


def _find_problem(name: str, op: UpdateOp, pace: Pace) -> PaceProblem | None:
    """Return why the end of an epoch is not known; None where it is."""
    if op.mode not in (None, ("train",)):
        return PaceProblem(f"'{name}' also runs in modes that count steps of their own", "write `mode: train` on it")
    try:
        Tempo(pace=pace).steps(Duration(count=1, unit="epochs"))
    except PaceProblem as problem:
        help = "declare `data: {train: ...}` with a source of known length, or write `on_epoch_end: carry`"
        return PaceProblem(problem.message, help, unit=problem.unit)
    return None
