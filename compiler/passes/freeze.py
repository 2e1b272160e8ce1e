"""Freezes: parameters that are frozen until some moment, and gradients that leave them out before."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from compiler.facts.optimizers import find_clock_rates, find_optimizers
from compiler.facts.parameters import Names
from compiler.ir.cell import find_tied, parameters_of
from compiler.ir.instructions import Accumulate, Apply, Frozen, Gradient, Instruction, TakeAccumulated, Transform
from compiler.ir.program import Gate, Mode, group_of
from compiler.passes.presence import CLOSING
from compiler.timing.period import find_firing_period, find_skippable
from compiler.timing.units import ClockRates, Pace, PaceProblem
from graphspec.declare.durations import Duration
from graphspec.declare.graph import GraphSpec
from graphspec.declare.matching import is_found
from graphspec.declare.ops import UpdateOp
from graphspec.diagnostics import Diagnostic

OWN = frozenset({*CLOSING, "regularize"})
"""Transforms that would give a gradient to a parameter that has none."""
Holders: TypeAlias = Mapping[str, frozenset[str]]
"""By model that freezes parameters for some time: all that hold some of them."""


class FreezeUntil(Struct, frozen=True, kw_only=True):
    """A group that is frozen until some moment."""

    model: str
    index: int
    match: str
    until: Duration

    @property
    def gate(self) -> str:
        """Return the gate that is open as long as it is frozen."""
        return group_of(self.model, self.index)


def find_freezes(spec: GraphSpec) -> Iterator[FreezeUntil]:
    """Yield the groups of all models that are frozen until some moment."""
    for name, model in spec.models.items():
        for index, group in enumerate(model.groups):
            if group.until is not None:
                yield FreezeUntil(model=name, index=index, match=group.match, until=group.until)


def find_freeze_gates(spec: GraphSpec, mode: Mode, nodes: Mapping[str, Instruction], pace: Pace) -> Iterator[Gate]:
    """Yield the gate of every group that is frozen at first, of models that are trained.

    Groups whose end cannot be counted are left out; :func:`check_freezes` reports them.
    """
    freezes = tuple(find_freezes(spec)) if mode == "train" else ()
    trained: set[str] = set()
    for node in nodes.values() if freezes else ():
        trained.update(() if node.derivative is None else node.derivative.models)
    for freeze in freezes:
        gate = find_freeze_gate(spec, freeze, pace)
        if gate is not None and gate.until != 0 and not trained.isdisjoint(find_holders(spec, freeze.model)):
            yield gate


def find_freeze_gate(spec: GraphSpec, freeze: FreezeUntil, pace: Pace) -> Gate | None:
    """Return the gate that is open as long as a group is frozen; None where its end cannot be counted."""
    try:
        return _make_gate(spec, freeze, pace)
    except PaceProblem:
        return None


def check_freezes(spec: GraphSpec, pace: Pace) -> Iterator[Diagnostic]:
    """Yield E-PACE for every group that is frozen until a moment that cannot be counted."""
    for freeze in find_freezes(spec):
        problem: PaceProblem | None = None
        holders = find_holders(spec, freeze.model)
        updates = {name: op for name, op in spec.ops.items() if isinstance(op, UpdateOp) and holders & {*op.update}}
        elsewhere = [name for name, op in updates.items() if op.mode not in (None, ("train",))]
        if elsewhere:
            message = f"'{elsewhere[0]}' also runs in modes that count their own steps"
            problem = PaceProblem(message, "write `mode: train` on it, or `frozen: true`")
        else:
            try:
                _make_gate(spec, freeze, pace)
            except PaceProblem as error:
                problem = error
        if problem is not None:
            yield Diagnostic(
                code="E-PACE",
                message=f"`until: {freeze.until}` of a group of model '{freeze.model}' cannot be counted: "
                f"{problem.message}",
                span=spec.span("models", freeze.model, "groups", freeze.index, "frozen", "until"),
                notes=problem.notes(spec),
                is_pending=problem.is_pending,
                help=problem.remedy(spec),
            )


def _make_gate(spec: GraphSpec, freeze: FreezeUntil, pace: Pace) -> Gate:
    """Return the gate that is open up to the step of the last update, or to the last step that ends before a moment.

    Where the step of the last update is not known, the run counts the updates.
    """
    cell = next((cell for cell in find_optimizers(spec) if freeze.model in cell.models), None)
    if freeze.until.unit != "updates" or cell is None:
        return Gate(op=freeze.gate, until=math.floor(ClockRates(pace=pace).steps(freeze.until)))
    held = find_skippable(spec, cell.updates)
    if len(cell.updates) == 1:
        period = None if held else find_firing_period(spec, cell.updates[0], epoch=pace.epoch)
        if period is None:
            return Gate(op=freeze.gate, last=int(freeze.until.count), counted=cell.updates)
        return Gate(op=freeze.gate, until=period.step(int(freeze.until.count)))
    if held is not None:
        message = f"several updates share the optimizer of '{freeze.model}', and '{held}' may be skipped"
        raise PaceProblem(message, "count steps: `1000 steps`")
    rates = replace(find_clock_rates(spec, cell, pace), help="count steps: `1000 steps`")
    return Gate(op=freeze.gate, until=math.floor(rates.steps(freeze.until)))


def find_holders(spec: GraphSpec, model: str) -> frozenset[str]:
    """Return a model and those that share parameters with it: what it freezes, none of them trains."""
    return frozenset((model, *find_tied(spec, model)))


def find_frozen(spec: GraphSpec, fired: Collection[str]) -> Frozen:
    """Return what is frozen, given the gates that are open."""
    return tuple((freeze.model, freeze.match) for freeze in find_freezes(spec) if freeze.gate in fired)


def find_fully_frozen(spec: GraphSpec, frozen: Frozen, known: Mapping[str, Names]) -> frozenset[str]:
    """Return the models all of whose parameters are currently frozen: no gradient need flow back to them.

    ``known``: model -> names of its parameters, for the models that were inspected; shared parameters do not count.
    """
    return frozenset(
        model
        for model, names in known.items()
        if not find_tied(spec, model)
        and all(any(is_found(match, name) for of, match in frozen if of == model) for name in names)
        and any(of == model for of, _ in frozen)
    )


def has_freezes(spec: GraphSpec) -> bool:
    """Return whether some parameters are frozen until some moment."""
    return any(True for _ in find_freezes(spec))


def freeze_parameters(
    nodes: Mapping[str, Instruction],
    frozen: Frozen,
    fully_frozen: Collection[str],
    spec: GraphSpec,
    may_miss: Collection[str],
) -> Mapping[str, Instruction]:
    """Return nodes in which no gradient is taken of what is currently frozen, and nothing gives it one.

    ``fully_frozen`` are models all of whose parameters are frozen. ``may_miss`` are the sets in which a gradient may be
    missing for another reason. Windows of models that are frozen for some time may miss gradients in every step: a
    window may begin before the freeze ends.
    """
    holders = {freeze.model: find_holders(spec, freeze.model) for freeze in find_freezes(spec)}
    if not holders:
        return nodes
    ever = tuple((freeze.model, freeze.match) for freeze in find_freezes(spec))
    found: dict[str, Instruction] = {}
    opened: set[str] = set()  # the sets that may miss gradients, and what is computed from them
    for name, node in nodes.items():
        # What is given the gradients of earlier steps may have nothing for what was frozen then.
        is_late = isinstance(node, Transform) and node.function.builtin and node.function.name == "accumulated"
        found[name] = made = _freeze(node, ever if is_late else frozen, holders, may_miss, fully_frozen)
        match made:
            case Gradient(output=str(output)) if made.frozen:
                opened.add(output)
            case TakeAccumulated() if made.may_miss:
                opened.add(made.output)
            case _:
                pass
    before = -1
    while len(opened) > before:
        before = len(opened)
        for name, node in found.items():
            if isinstance(node, Transform) and not opened.isdisjoint(node.inputs):
                found[name] = replace(node, may_miss=True)
                opened.add(node.output)
            elif isinstance(node, Apply):
                parts = (replace(part, may_miss=part.may_miss or part.gradients in opened) for part in node.parts)
                found[name] = replace(node, parts=tuple(parts))
    return found


def _freeze(
    instruction: Instruction,
    frozen: Frozen,
    holders: Holders,
    may_miss: Collection[str],
    fully_frozen: Collection[str],
) -> Instruction:
    """Return an instruction that takes no gradient of what is currently frozen."""
    match instruction:
        case Gradient():
            whole = tuple(model for model in instruction.models if model in fully_frozen)
            cells = instruction.cells - {parameters_of(model) for model in whole}
            frozen = _of(frozen, instruction.models, holders)
            return replace(instruction, cells=cells, frozen=frozen, fully_frozen=whole)
        case Transform() if instruction.function.builtin and instruction.function.name in OWN:
            return replace(instruction, frozen=_of(frozen, instruction.models, holders))
        case Accumulate() if _may_unfreeze(instruction.models, holders):
            is_strict = instruction.gradients in may_miss and not instruction.may_miss
            found = _of(frozen, instruction.models, holders) if is_strict else ()
            return replace(instruction, may_miss=True, strict=is_strict, frozen=found)
        case TakeAccumulated() if _may_unfreeze(instruction.models, holders):
            return replace(instruction, may_miss=True)
        case _:
            return instruction


def _may_unfreeze(models: Collection[str], holders: Holders) -> bool:
    """Return whether some parameters of models are frozen for some time."""
    return any(not each.isdisjoint(models) for each in holders.values())


def _of(frozen: Frozen, models: Collection[str], holders: Holders) -> Frozen:
    """Return what is currently frozen of some models, and of what they share."""
    return tuple(each for each in frozen if not holders[each[0]].isdisjoint(models))
