"""Lowering of verdicts: whether the gradients behind an update are finite, and what it means where they are not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from compiler.cells import window_of
from compiler.instructions import Collect, Guard, Judge
from compiler.ir import TOGETHER, Node, Overflow, Use
from compiler.ops.context import Lowering
from compiler.program import Mode
from graphspec.graph import GraphSpec
from graphspec.modes import Reach
from graphspec.ops import CallOp, TransformOp, UpdateOp


def find_judged(spec: GraphSpec) -> frozenset[str]:
    """Return the updates over whose gradients there is a verdict: all under a loss scale, else those that ask for it.

    One that asks for others makes verdicts of all.
    """
    updates = {name: op for name, op in spec.ops.items() if isinstance(op, UpdateOp)}
    written = {op.on_overflow for op in updates.values()}
    if spec.loss_scale is not None or not written.isdisjoint(TOGETHER):
        return frozenset(updates)
    return frozenset(name for name, op in updates.items() if op.on_overflow not in (None, "apply"))


def is_scaled(spec: GraphSpec, mode: Mode, reaches: Mapping[str, Reach]) -> bool:
    """Return whether losses are scaled in a mode: where models are stepped."""
    updates = (name for name, op in spec.ops.items() if isinstance(op, UpdateOp))
    return spec.loss_scale is not None and any(mode in reaches[name].modes for name in updates)


def find_overflow(op: UpdateOp, spec: GraphSpec) -> Overflow:
    """Return what gradients that are not finite stop: as the update says, its group where losses are scaled."""
    return op.on_overflow or ("group" if spec.loss_scale is not None else "")


def judge(
    name: str, op: UpdateOp, context: Lowering, shared: Mapping[str, Mapping[str, bool]] | None = None
) -> tuple[Node, ...]:
    """Return the node that looks at the gradients of an update as they were taken, if there is to be a verdict.

    ``shared``: set -> those that its windows take in its place, of terms that count differently, and whether these are
    absent from some steps.
    """
    if name not in context.judged:
        return ()
    taken = (name,) if op.loss is not None else tuple(dict.fromkeys(_find_sources(op.gradients or (), context)))
    spans = {each: op.update if each == name else context.sets.get(each, ()) for each in taken}
    found = [(each, *pair) for each in taken for pair in (shared or {}).get(each, {each: False}).items()]
    sets = tuple(value for _, value, _ in found)
    output = verdict_of(name)
    covered = tuple(spans[each] for each, _, _ in found)
    instruction = Judge(op=name, place=context.place(name), gradients=sets, spans=covered, output=output)
    node = Node(
        id=output,
        op=name,
        instruction=instruction,
        label=f"verdict {name}",
        uses=tuple(Use(value=value, differentiable=False, optional=is_lazy) for _, value, is_lazy in found),
        defines=(output,),
        differentiable=False,
        place=instruction.place,
        gate=window_of(name) if op.window > 1 else "",
    )
    return (node,)


def verdict_of(update: str) -> str:
    """Return the value that says whether the gradients of an update are finite."""
    return f"{update}.finite"


def _find_sources(sets: tuple[str, ...], context: Lowering) -> Iterator[str]:
    """Yield the gradients that sets are made from: what was clipped tells nothing any more."""
    owners = {value: op for name, op in context.spec.ops.items() for value in op.defines(name)}
    for value in sets:
        op = owners[value]
        if isinstance(op, TransformOp | CallOp):
            inputs = tuple(reference.name for reference in op.operands() if reference.name in context.sets)
            yield from _find_sources(inputs, context)
        else:
            yield value


def guard_of(name: str, op: UpdateOp, context: Lowering, overflow: Overflow) -> Guard:
    """Return what gradients that are not committed cost the window of an update.

    One that takes them whatever they are does without those of steps in which the update that it goes by is held.
    """
    if op.accumulate is None:
        return "none"
    if name in context.judged and overflow != "apply":
        return op.accumulate.on_nonfinite
    return "drop" if op.every in context.judged else "none"


def find_verdicts(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Return the verdict over what the nodes of an update give: that of its windows, where it has some.

    All windows of an update are filled together.
    """
    filled = [each.filled for node in nodes if isinstance(each := node.instruction, Collect)]
    judged = [each.output for node in nodes if isinstance(each := node.instruction, Judge)]
    return tuple(filter(None, (filled or judged)[:1]))


def bind_update(write: Node, op: UpdateOp, verdicts: tuple[str, ...], spec: GraphSpec) -> Node:
    """Return the write of an update under its verdict, the first, and those over what it shares with others."""
    if not verdicts:
        return write
    first, *others = verdicts
    bound = bind(write, first, find_overflow(op, spec) if op.window == 1 else "own")
    return replace(bound, others=tuple(others))


def bind(write: Node, verdict: str, overflow: Overflow) -> Node:
    """Return a write of gradients that takes place under a verdict."""
    use = Use(value=verdict, differentiable=False)
    return replace(write, verdict=verdict, overflow=overflow, uses=(*write.uses, use))
