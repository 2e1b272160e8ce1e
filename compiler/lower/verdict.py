"""Lowering of verdicts: whether the gradients of an update are finite, and what happens where they are not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

from msgspec.structs import replace

from compiler.ir.instructions import (
    TOGETHER,
    CheckFinite,
    Gradient,
    Guard,
    Instruction,
    InstructionBase,
    Overflow,
    TakeAccumulated,
    Transform,
)
from compiler.ir.program import Mode, window_of
from compiler.ir.value import Use
from compiler.lower.context import LoweringContext
from graphspec.analysis.modes import Reach, find_makers
from graphspec.analysis.remembering import once_per_spec
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import CallOp, TransformOp, UpdateOp

Made: TypeAlias = Mapping[str | None, Transform | Gradient | TakeAccumulated]
"""What makes the sets of an update that are no op's, by name."""
KEEPING = frozenset({"clip_norm", "clip_value", "join", "fill", "require", "accumulated"})
"""Transforms that map finite gradients to finite gradients."""
SHOWING = frozenset(
    {"add", "sub", "add_sets", "sub_sets", "regularize", "clip_norm", "join", "fill", "require", "accumulated"}
)
"""Transforms that never map non-finite gradients to finite ones."""
"""The suffix of the values that say whether a window holds anything."""


@once_per_spec
def has_scale(spec: GraphSpec) -> bool:
    """Return whether losses are scaled in some mode."""
    return spec.loss_scale is not None


@once_per_spec
def find_checked(spec: GraphSpec) -> frozenset[str]:
    """Return the updates over whose gradients there is a verdict: all under a loss scale, else those that ask for it.

    One that asks for others makes verdicts of all.
    """
    updates = {name: op for name, op in spec.ops.items() if isinstance(op, UpdateOp)}
    written = {op.on_overflow for op in updates.values()}
    if has_scale(spec) or not written.isdisjoint(TOGETHER):
        return frozenset(updates)
    return frozenset(name for name, op in updates.items() if op.on_overflow not in (None, "apply"))


@once_per_spec
def find_skippable_updates(spec: GraphSpec) -> frozenset[str]:
    """Return the updates that are skipped in steps whose gradients are not finite, while the run continues."""
    policies = {name: op.on_overflow for name, op in spec.ops.items() if isinstance(op, UpdateOp)}
    return frozenset(name for name in find_checked(spec) if policies[name] not in ("apply", "error"))


def is_scaled(spec: GraphSpec, mode: Mode, reaches: Mapping[str, Reach]) -> bool:
    """Return whether losses are scaled in a mode: where models are stepped."""
    updates = (name for name, op in spec.ops.items() if isinstance(op, UpdateOp))
    return has_scale(spec) and any(mode in reaches[name].modes for name in updates)


def find_overflow(op: UpdateOp, spec: GraphSpec) -> Overflow:
    """Return what non-finite gradients stop: what the update says, else its group where losses are scaled."""
    return op.on_overflow or ("group" if has_scale(spec) else "")


def check_gradients(
    name: str, op: UpdateOp, context: LoweringContext, shared: Mapping[str, Mapping[str, bool]] | None = None
) -> tuple[Instruction, ...]:
    """Return the node that checks the raw gradients that a window takes in, if the update has a verdict.

    ``shared``: set -> those that its windows take in its place, of terms that count differently, and whether these are
    absent from some steps.
    """
    if name not in context.checked:
        return ()
    taken = (name,) if op.loss is not None else _find_raw(op.gradients or (), {}, context)
    spans = {each: op.update if each == name else context.value(each).models for each in taken}
    found = [(each, *pair) for each in taken for pair in (shared or {}).get(each, {each: False}).items()]
    node = _check_node(name, op, name, {value: spans[each] for each, value, _ in found}, context)
    uses = tuple(replace(use, optional=is_lazy) for use, (_, _, is_lazy) in zip(node.uses, found, strict=True))
    return (replace(node, uses=uses, gate=window_of(name)),)


def check_final_gradients(
    name: str,
    op: UpdateOp,
    sets: Mapping[str, tuple[str, ...]],
    chain: Sequence[Instruction],
    context: LoweringContext,
    subject: str,
) -> tuple[Instruction, ...]:
    """Return the node that checks what an optimizer is given, if there is to be a verdict.

    It covers all that the final ``sets`` are made of, from the gradients as they were taken on; what can neither hide
    an infinity nor make one needs no check of its own.
    """
    if name not in context.checked:
        return ()
    made = {each.output: each for each in chain if isinstance(each, Transform | Gradient | TakeAccumulated)}
    spans = {value: each.models for value, each in made.items()} | dict(sets)
    checked_sets = _find_checked_sets(sets, made, context)
    covered = {each: spans.get(each) or context.value(each).models for each in checked_sets}
    return (_check_node(name, op, subject, covered, context, *find_filled(chain)),)


def _check_node(
    name: str,
    op: UpdateOp,
    subject: str,
    spans: Mapping[str, tuple[str, ...]],
    context: LoweringContext,
    filled: str = "",
) -> Instruction:
    """Return the node that gives the verdict over some sets; ``spans``: the models of each."""
    return CheckFinite(
        id=verdict_of(subject),
        op=name,
        label=f"verdict {subject}",
        place=context.place(name),
        uses=tuple(Use(value=value, differentiable=False) for value in (*spans, *((filled,) if filled else ()))),
        differentiable=False,
        overflow=find_overflow(op, context.spec),
        subject=subject,
        gradients=tuple(spans),
        spans=tuple(spans.values()),
        filled=filled,
    )


def _find_checked_sets(sets: Iterable[str], made: Made, context: LoweringContext) -> tuple[str, ...]:
    """Return the sets to check so that some sets are finite, and all that they are made of."""
    found: dict[str, None] = {}
    seen = set[tuple[str, str]]()
    pending = [("whole", value) for value in reversed([*sets])]
    while pending:
        wanted, value = pending.pop()
        if wanted == "itself":
            found[value] = None
        if wanted == "itself" or (wanted, value) in seen:
            continue
        seen.add((wanted, value))
        function, inputs = _step_of(value, made, context) or ("", ())
        if wanted == "whole" and function not in KEEPING:
            pending += [("itself", value)] + [("hidden", value)] * bool(function)
            continue
        # Hidden is what may be infinite although the set that is made of it is finite.
        following = "hidden" if wanted == "hidden" and function in SHOWING else "whole"
        pending += [(following, each) for each in reversed(inputs)]
    return tuple(found)


def _find_raw(sets: Iterable[str], made: Made, context: LoweringContext) -> tuple[str, ...]:
    """Return the original gradients that sets are computed from."""
    found: dict[str, None] = {}
    seen, pending = set[str](), [*reversed([*sets])]
    while pending:
        value = pending.pop()
        step = _step_of(value, made, context)
        if step is None:
            found[value] = None
        elif value not in seen:
            pending += reversed(step[1])
        seen.add(value)
    return tuple(found)


def _step_of(value: str, made: Made, context: LoweringContext) -> tuple[str, tuple[str, ...]] | None:
    """Return the function that makes a set, and the sets it is given; None for gradients as they were taken."""
    ops = context.spec.ops
    maker = value if value in ops else find_makers(context.spec).get(value, "")
    match ops.get(maker) or made.get(value):
        case Transform() as each:
            return each.function.name, tuple(one for one in each.inputs if one in made or context.value(one).models)
        case TransformOp() as op:
            return op.transform.name(context.backend), op.inputs
        case CallOp() as op:
            inputs = (reference.name for reference in op.operands())
            return op.call.name(context.backend), tuple(each for each in inputs if context.value(each).models)
        case _:
            return None


def verdict_of(subject: str) -> str:
    """Return the value that says whether the gradients of an update are finite, or what it makes of them."""
    return f"{subject}.finite"


def guard_of(name: str, op: UpdateOp, context: LoweringContext, overflow: Overflow) -> Guard:
    """Return what happens to the window of an update when the gradients of a step are not committed.

    One that takes all gradients, finite or not, loses those of steps in which the update that paces it is skipped.
    """
    if op.accumulate is None:
        return "none"
    if name in context.checked and overflow != "apply":
        return op.accumulate.on_nonfinite
    while isinstance(op.every, str):  # the update that paces it may have a verdict, or one further up that chain
        if op.every in context.checked:
            return "drop"
        gated_by = context.spec.ops[op.every]
        if not isinstance(gated_by, UpdateOp):
            break
        op = gated_by
    return "none"


def find_update_verdicts(nodes: Iterable[Instruction]) -> tuple[str, ...]:
    """Return the verdicts over what the nodes of an update give: whether its windows hold something, and the last one.

    All windows of an update are filled together.
    """
    checked = [each.output for each in nodes if isinstance(each, CheckFinite)]
    return (*find_filled(nodes), *checked[-1:])


def find_filled(nodes: Iterable[Instruction]) -> tuple[str, ...]:
    """Return the value that says whether the windows of an update hold something, where that is computed."""
    filled = [each.filled for each in nodes if isinstance(each, TakeAccumulated)]
    return tuple(filter(None, filled[:1]))


def bind_update(
    write: Instruction,
    op: UpdateOp,
    own: tuple[str, ...],
    others: tuple[str, ...],
    filled: tuple[str, ...],
    spec: GraphSpec,
) -> Instruction:
    """Return the write of an update under its own verdicts, and those over what it shares with others.

    The first of its own is the one by which it is in a group. A windowed update that takes all gradients depends only
    on whether its window is non-empty.
    """
    overflow = find_overflow(op, spec)
    write = replace(write, uses=(*write.uses, *(Use(value=each, differentiable=False) for each in own)))
    if op.window > 1 and overflow == "apply":
        own, others = filled, ()
    if not own:
        return write
    bound = overflow if op.window == 1 else "own"
    return replace(write, verdict=own[0], overflow=bound, extra_checks=(*own[1:], *others))


Bound = TypeVar("Bound", bound=InstructionBase)


def bind(write: Bound, verdict: str, overflow: Overflow) -> Bound:
    """Return a write of gradients that takes place under a verdict."""
    use = Use(value=verdict, differentiable=False)
    return replace(write, verdict=verdict, overflow=overflow, uses=(*write.uses, use))
