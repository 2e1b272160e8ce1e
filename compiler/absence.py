"""Absence: lazy terms that do not run in a step, and sums that do without them there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from compiler.ir import Node
from compiler.ops.evaluate import leave_out
from graphspec.graph import GraphSpec
from graphspec.ops import CallOp, LossOp, Op


def find_lazy(spec: GraphSpec) -> frozenset[str]:
    """Return the values that a sum does without where they are absent: lazy losses, and sums of nothing else."""
    lazy = {name for name, op in spec.ops.items() if isinstance(op, LossOp) and op.is_lazy}
    before = -1
    while len(lazy) > before:
        before = len(lazy)
        lazy |= {name for name, op in spec.ops.items() if is_sum(op) and _operands(op) <= lazy}
    return frozenset(lazy)


def is_sum(op: Op) -> bool:
    """Return whether an op adds up values, and can do so with fewer of them."""
    return isinstance(op, CallOp) and op.call.is_builtin and op.call.name("torch") == "add"


def _operands(op: Op) -> set[str]:
    """Return the values that an op uses."""
    return {reference.name for reference in op.operands()}


def find_absent(nodes: Mapping[str, Node], resting: Collection[str]) -> frozenset[str]:
    """Return the nodes without a value in a step: those of ops that rest, and sums of nothing but these."""
    absent = {name for name, node in nodes.items() if node.admission in resting and not node.eager}
    producers = {value: node.id for node in nodes.values() for value in node.defines}
    sums = [node for node in nodes.values() if node.uses and all(use.optional for use in node.uses)]
    before = -1
    while len(absent) > before:
        before = len(absent)
        absent |= {node.id for node in sums if all(producers.get(use.value) in absent for use in node.uses)}
    return frozenset(absent)


def find_idle_writes(nodes: Mapping[str, Node], resting: Collection[str]) -> frozenset[str]:
    """Return the writes of ops that rest: what could do with their values does without them."""
    return frozenset(name for name, node in nodes.items() if node.admission in resting and node.eager)


def drop_absent(node: Node, present: Collection[str]) -> Node:
    """Return a node without the optional uses of values that nothing defines in a step."""
    gone = frozenset(use.value for use in node.uses if use.optional and use.value not in present)
    if not gone:
        return node
    uses = tuple(use for use in node.uses if use.value not in gone)
    return replace(node, uses=uses, instruction=leave_out(node.instruction, gone))
