"""Thawing: parameters that are frozen until some moment, and gradients that leave them out before."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from compiler.facts.optimizers import find_optimizers, find_tempo
from compiler.facts.parameters import Names
from compiler.ir.cell import find_tied, parameters_of
from compiler.ir.instructions import Apply, Collect, Gather, Gradient, Instruction, Resting, Transform
from compiler.ir.program import Gate, Mode, group_of
from compiler.passes.presence import CLOSING
from compiler.timing.period import find_rhythm, refuse_held
from compiler.timing.units import Pace, PaceProblem, Tempo
from graphspec.declare.durations import Duration
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import UpdateOp
from graphspec.diagnostics import Diagnostic
from graphspec.matching import is_found

OWN = frozenset({*CLOSING, "regularize"})
"""Transforms that would give a gradient to a parameter that has none."""
Holders: TypeAlias = Mapping[str, frozenset[str]]
"""By model that freezes parameters for some time: all that hold some of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thaw:
    """A group that is frozen until some moment."""

    model: str
    index: int
    match: str
    until: Duration

    @property
    def gate(self) -> str:
        """Return the gate that is open as long as it is frozen."""
        return group_of(self.model, self.index)


def find_thaws(spec: GraphSpec) -> Iterator[Thaw]:
    """Yield the groups of all models that are frozen until some moment."""
    for name, model in spec.models.items():
        for index, group in enumerate(model.groups):
            if group.until is not None:
                yield Thaw(model=name, index=index, match=group.match, until=group.until)


def find_thaw_gates(spec: GraphSpec, mode: Mode, nodes: Mapping[str, Instruction], pace: Pace) -> Iterator[Gate]:
    """Yield the gate of every group that is frozen at first, of models that are trained.

    Groups whose end cannot be counted are left out; :func:`check_thaws` reports them.
    """
    trained = {model for node in nodes.values() if node.derivative is not None for model in node.derivative.models}
    for thaw in find_thaws(spec) if mode == "train" else ():
        last = find_last(spec, thaw, pace)
        if last and not trained.isdisjoint(find_holders(spec, thaw.model)):
            yield Gate(op=thaw.gate, until=last)


def find_last(spec: GraphSpec, thaw: Thaw, pace: Pace) -> int | None:
    """Return the last step in which a group is frozen; None where that cannot be counted."""
    try:
        return _count(spec, thaw, pace)
    except PaceProblem:
        return None


def check_thaws(spec: GraphSpec, pace: Pace) -> Iterator[Diagnostic]:
    """Yield E-PACE for every group that is frozen until a moment that cannot be counted."""
    for thaw in find_thaws(spec):
        problem: PaceProblem | None = None
        holders = find_holders(spec, thaw.model)
        updates = {name: op for name, op in spec.ops.items() if isinstance(op, UpdateOp) and holders & {*op.update}}
        elsewhere = [name for name, op in updates.items() if op.mode not in (None, ("train",))]
        if elsewhere:
            message = f"'{elsewhere[0]}' also runs in modes that count their own steps"
            problem = PaceProblem(message, "write `mode: train` on it, or `frozen: true`")
        else:
            try:
                _count(spec, thaw, pace)
            except PaceProblem as error:
                problem = error
        if problem is not None:
            yield Diagnostic(
                code="E-PACE",
                message=f"`until: {thaw.until}` of a group of model '{thaw.model}' cannot be counted: "
                f"{problem.message}",
                span=spec.span("models", thaw.model, "groups", thaw.index, "frozen", "until"),
                notes=problem.notes(spec),
                is_pending=problem.is_pending,
                help=problem.help,
            )


def _count(spec: GraphSpec, thaw: Thaw, pace: Pace) -> int:
    """Return the last step of a moment: that of the last update, or the last one that ends before it."""
    cell = next((cell for cell in find_optimizers(spec) if thaw.model in cell.models), None)
    if thaw.until.unit != "updates" or cell is None:
        return math.floor(Tempo(pace=pace).steps(thaw.until))
    refuse_held(spec, cell.updates)
    rhythm = find_rhythm(spec, cell.updates[0], epoch=pace.epoch) if len(cell.updates) == 1 else None
    if rhythm is not None:
        return rhythm.step(int(thaw.until.count))
    tempo = replace(find_tempo(spec, cell, pace), help="count steps: `1000 steps`")
    return math.floor(tempo.steps(thaw.until))


def find_holders(spec: GraphSpec, model: str) -> frozenset[str]:
    """Return a model and those that share parameters with it: what it freezes, none of them trains."""
    return frozenset((model, *find_tied(spec, model)))


def find_resting(spec: GraphSpec, fired: Collection[str]) -> Resting:
    """Return what is frozen, given the gates that are open."""
    return tuple((thaw.model, thaw.match) for thaw in find_thaws(spec) if thaw.gate in fired)


def find_asleep(spec: GraphSpec, resting: Resting, known: Mapping[str, Names]) -> frozenset[str]:
    """Return the models all of whose parameters are frozen for now: no gradient need flow back to them.

    ``known``: model -> names of its parameters, for the models that were inspected; shared parameters do not count.
    """
    return frozenset(
        model
        for model, names in known.items()
        if not find_tied(spec, model)
        and all(any(is_found(match, name) for of, match in resting if of == model) for name in names)
        and any(of == model for of, _ in resting)
    )


def has_thaws(spec: GraphSpec) -> bool:
    """Return whether some parameters are frozen until some moment."""
    return any(True for _ in find_thaws(spec))


def rest(
    nodes: Mapping[str, Instruction], resting: Resting, asleep: Collection[str], spec: GraphSpec, gaps: Collection[str]
) -> Mapping[str, Instruction]:
    """Return nodes in which no gradient is taken of what is frozen for now, and nothing gives it one.

    ``asleep`` are models that are frozen whole. ``gaps`` are the sets in which a gradient may be absent for another
    reason. Windows of models that are frozen for some time have gaps in every step: one may reach over the moment.
    """
    holders = {thaw.model: find_holders(spec, thaw.model) for thaw in find_thaws(spec)}
    if not holders:
        return nodes
    ever = tuple((thaw.model, thaw.match) for thaw in find_thaws(spec))
    found: dict[str, Instruction] = {}
    opened: set[str] = set()  # the sets with gaps: first those of gradients and windows, then what is made of them
    for name, node in nodes.items():
        # What is given the gradients of earlier steps may have nothing for what was frozen then.
        is_late = isinstance(node, Transform) and node.function.builtin and node.function.name == "gathered"
        found[name] = rested = _rest(node, ever if is_late else resting, holders, gaps, asleep)
        match rested:
            case Gradient(output=str(output)) if rested.resting:
                opened.add(output)
            case Collect() if rested.gaps:
                opened.add(rested.output)
            case _:
                pass
    before = -1
    while len(opened) > before:
        before = len(opened)
        for name, node in found.items():
            if isinstance(node, Transform) and not opened.isdisjoint(node.inputs):
                found[name] = replace(node, gaps=True)
                opened.add(node.output)
            elif isinstance(node, Apply):
                parts = (replace(part, gaps=part.gaps or part.gradients in opened) for part in node.parts)
                found[name] = replace(node, parts=tuple(parts))
    return found


def _rest(
    instruction: Instruction,
    resting: Resting,
    holders: Holders,
    gaps: Collection[str],
    asleep: Collection[str],
) -> Instruction:
    """Return an instruction that takes no gradient of what is frozen for now."""
    match instruction:
        case Gradient():
            sleeping = tuple(model for model in instruction.models if model in asleep)
            cells = instruction.cells - {parameters_of(model) for model in sleeping}
            frozen = _of(resting, instruction.models, holders)
            return replace(instruction, cells=cells, resting=frozen, asleep=sleeping)
        case Transform() if instruction.function.builtin and instruction.function.name in OWN:
            return replace(instruction, resting=_of(resting, instruction.models, holders))
        case Gather() if _may_thaw(instruction.models, holders):
            is_strict = instruction.gradients in gaps and not instruction.gaps
            found = _of(resting, instruction.models, holders) if is_strict else ()
            return replace(instruction, gaps=True, strict=is_strict, resting=found)
        case Collect() if _may_thaw(instruction.models, holders):
            return replace(instruction, gaps=True)
        case _:
            return instruction


def _may_thaw(models: Collection[str], holders: Holders) -> bool:
    """Return whether some parameters of models are frozen for some time."""
    return any(not each.isdisjoint(models) for each in holders.values())


def _of(resting: Resting, models: Collection[str], holders: Holders) -> Resting:
    """Return what is frozen for now of some models, and of what they share."""
    return tuple(each for each in resting if not holders[each[0]].isdisjoint(models))
