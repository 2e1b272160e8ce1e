"""Absence: lazy terms that do not run in a step, and sums that do without them there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from compiler.ir.instructions import (
    Accumulate,
    CheckFinite,
    Evaluate,
    Gradient,
    Instruction,
    ResetAccumulator,
    RestoreAccumulator,
    TakeAccumulated,
    Transform,
)
from compiler.ir.step_graph import find_producers
from compiler.ir.value import Ref
from compiler.passes.order import sort_by_data


def find_absent(nodes: Mapping[str, Instruction], idle: Collection[str]) -> frozenset[str]:
    """Return the nodes without a value in a step: those of idle ops, and what is made of nothing but these."""
    absent = {name for name, node in nodes.items() if node.admission in idle and not node.is_write}
    if not absent:
        return frozenset()
    producers = find_producers(nodes.values())
    for name in sort_by_data(nodes):
        if is_made_of(nodes[name], absent, producers):
            absent.add(name)
    return frozenset(absent)


def is_made_of(node: Instruction, absent: Collection[str], producers: Mapping[str, str]) -> bool:
    """Return whether all that a node is made of may be absent, and is; a gradient is made of its loss."""
    if node.is_write:
        return False
    loss, is_made = None if node.derivative is None else node.derivative.loss, False
    for use in node.uses:
        if loss is None or use.value == loss:
            if not use.optional or producers.get(use.value) not in absent:
                return False
            is_made = True
    return is_made


def find_idle_writes(nodes: Mapping[str, Instruction], idle: Collection[str]) -> frozenset[str]:
    """Return the writes of ops that do not run in a step; users of their values drop those uses."""
    return frozenset(name for name, node in nodes.items() if node.admission in idle and node.is_write)


def drop_absent(node: Instruction, present: Collection[str]) -> Instruction:
    """Return a node without the optional uses of values that nothing defines in a step."""
    gone = frozenset(use.value for use in node.uses if use.optional and use.value not in present)
    if not gone:
        return node
    left = _leave_out(node, gone)
    return replace(left, uses=tuple(use for use in node.uses if use.value not in gone))


def _leave_out(node: Instruction, values: Collection[str]) -> Instruction:
    """Return a sum without the operands that are among some values, or what takes a window without its last step."""
    match node:
        case Transform(inputs=inputs, spans=spans):
            kept = [at for at, value in enumerate(inputs) if value not in values]
            left = tuple(spans[at] for at in kept) if spans else ()
            return replace(node, inputs=tuple(inputs[at] for at in kept), spans=left)
        case CheckFinite(gradients=gradients, spans=spans):
            pairs = [pair for pair in zip(gradients, spans, strict=True) if pair[0] not in values]
            return replace(node, gradients=tuple(one for one, _ in pairs), spans=tuple(one for _, one in pairs))
        case Accumulate():
            return replace(node, gradients=None)
        case TakeAccumulated():
            return replace(node, alone=True)
        case RestoreAccumulator() | ResetAccumulator():
            return node
        case Evaluate(arguments=arguments):
            kept = (each for each in arguments if not (isinstance(each.operand, Ref) and each.operand.name in values))
            return replace(node, arguments=tuple(kept))
        case _:
            raise AssertionError(f"{node.op} does without nothing")


CLOSING = frozenset({"require", "fill", "accumulated"})
"""Transforms after which no gradient is missing: one rejects it, one fills in zeros, one is given complete sets."""


def find_open(nodes: Iterable[Instruction]) -> frozenset[str]:
    """Return the gradient sets that may miss gradients, among what nodes define."""
    found = set[str]()
    for node in nodes:
        match node:
            case Gradient():
                may_miss = node.unconnected == "skip"
            case Transform():
                may_miss = node.may_miss and node.function.name not in CLOSING
            case TakeAccumulated():
                may_miss = node.may_miss
            case _:
                may_miss = False
        found.update(node.defines if may_miss else ())
    return frozenset(found)
