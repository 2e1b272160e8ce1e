"""Ends of epochs: gates that have to do with them, and what cannot be counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from compiler.cells import drop_of
from compiler.checks.context import Scene
from compiler.ir import StepGraph
from compiler.pace import Pace, PaceProblem, Tempo
from compiler.program import Gate
from compiler.rhythms import refuse_held
from graphspec.datasets import find_inputs
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


def find_closing(spec: GraphSpec) -> frozenset[str]:
    """Return the gates of what takes place at the end of an epoch, whatever batch its last step has."""
    ending = [name for name, op in spec.ops.items() if isinstance(op, UpdateOp) and op.at_epoch_end != "carry"]
    return frozenset(gate for name in ending for gate in (name, drop_of(name)))


def has_ends(spec: GraphSpec) -> bool:
    """Return whether some window does not go on into the next epoch."""
    return any(isinstance(op, UpdateOp) and op.at_epoch_end != "carry" for op in spec.ops.values())


def check_windows(spec: GraphSpec, pace: Pace) -> Iterator[Diagnostic]:
    """Yield E-PACE for every update whose window ends with an epoch, where nobody knows when that is."""
    for name, op in spec.ops.items():
        if not isinstance(op, UpdateOp) or op.at_epoch_end == "carry":
            continue
        problem = _find_problem(spec, name, op, pace)
        if problem is not None:
            done = WORDS[op.at_epoch_end]
            yield Diagnostic(
                code="E-PACE",
                message=f"'{name}' {done} what it has gathered at the end of an epoch, which cannot be counted: "
                f"{problem.message}",
                span=spec.span("ops", name, "accumulate", "on_epoch_end"),
                notes=problem.notes(spec),
                is_pending=problem.is_pending,
                help=problem.help,
            )


def check_numbers(scene: Scene, graph: StepGraph, dataset: str) -> Iterator[Diagnostic]:
    """Yield E-ABSENT for what ends a window and uses a value that is not there on batches of the step's data set.

    The end of an epoch may be a step on a data set that the update does not run on: gradients are not taken there, and
    what they are multiplied with may not be made.
    """
    spec, closing = scene.spec, find_closing(scene.spec)
    made = {value for node in graph.nodes.values() for value in node.defines} | set(find_inputs(spec, dataset))
    known = {*scene.producers, *spec.inputs}
    for node in (node for node in graph.nodes.values() if node.admission in closing):
        for value in dict.fromkeys(use.value for use in node.uses if use.value in known and use.value not in made):
            yield Diagnostic(
                code="E-ABSENT",
                message=f"'{node.op}' uses '{value}' at the end of an epoch, in a step on a batch of '{dataset}', "
                f"where '{value}' is not there",
                span=spec.span("ops", node.admission, "accumulate", "on_epoch_end"),
                label="an epoch may end with a batch of any data set",
                help="write `on_epoch_end: carry`, or apply what was gathered without this value",
            )


def _find_problem(spec: GraphSpec, name: str, op: UpdateOp, pace: Pace) -> PaceProblem | None:
    """Return why the end of an epoch is not known; None where it is."""
    if op.mode not in (None, ("train",)):
        return PaceProblem(f"'{name}' also runs in modes that count steps of their own", "write `mode: train` on it")
    try:
        Tempo(pace=pace).steps(Duration(count=1, unit="epochs"))
    except PaceProblem as problem:
        help = "declare `data: {train: ...}` with a source of known length, or write `on_epoch_end: carry`"
        return PaceProblem(problem.message, help, unit=problem.unit)
    if op.at_epoch_end == "flush" and isinstance(op.every, str):
        try:
            refuse_held(spec, (op.every,))
        except PaceProblem as problem:
            return PaceProblem(problem.message, "write `on_epoch_end: carry`, or `drop`")
    return None
