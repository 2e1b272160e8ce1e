"""Gaps: gradient sets in which some parameter may have no gradient. An absent gradient is not zero."""

from __future__ import annotations

from collections.abc import Iterable

from compiler.instructions import Collect, Gradient, Instruction, Transform
from compiler.ir import Node
from graphspec.gradient_sets import Sets
from graphspec.graph import GraphSpec
from graphspec.ops import GradientOp

CLOSING = frozenset({"require", "fill", "gathered"})
"""Transforms that leave no gap: one refuses it, one puts zeros there; one is given sets of steps that had none."""


def find_gaps(spec: GraphSpec, sets: Sets) -> frozenset[str]:
    """Return the gradient sets of a spec that may have gaps: those of `unconnected: skip`, and what is made of them."""
    found = {name for name in sets if _may_skip(spec, name)}
    before = -1
    while len(found) > before:
        before = len(found)
        found |= {name for name in sets if name in spec.ops and not _inputs(spec, name).isdisjoint(found)}
    return frozenset(found)


def _may_skip(spec: GraphSpec, name: str) -> bool:
    """Return whether a set is that of a gradient that leaves gaps."""
    owners = (op for owner, op in spec.ops.items() if name in op.defines(owner))
    return any(isinstance(op, GradientOp) and op.unconnected == "skip" for op in owners)


def _inputs(spec: GraphSpec, name: str) -> frozenset[str]:
    """Return the gradient sets of which an op makes one."""
    op = spec.ops[name]
    made = () if isinstance(op, GradientOp) else op.operands()
    return frozenset(reference.name for reference in made)


def find_open(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the gradient sets with gaps among what nodes define."""
    return frozenset(value for node in nodes for value in node.defines if _leaves_gaps(node.instruction))


def _leaves_gaps(instruction: Instruction) -> bool:
    """Return whether the set that an instruction defines may have gaps."""
    match instruction:
        case Gradient():
            return instruction.unconnected == "skip"
        case Transform():
            return instruction.gaps and instruction.function.name not in CLOSING
        case Collect():
            return instruction.gaps
        case _:
            return False
