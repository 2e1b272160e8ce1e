"""Which writes may turn out not to take place, and what that leaves undecided: when averages of these are due."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from compiler.causality import find_writers
from compiler.ir import Node
from compiler.program import Gate


def find_holdable(nodes: Mapping[str, Node]) -> frozenset[str]:
    """Return the ops whose writes take place only under verdicts in some step, and those of all that follows these."""
    writers = find_writers(nodes.values())
    held = {node.op for node in nodes.values() if node.verdict and node.overflow != "apply" and node.id == node.op}
    before = -1
    while before < len(held):
        before = len(held)
        followers = [node for node in nodes.values() if node.eager and _follows(node, held, nodes, writers)]
        held |= {name for node in followers for name in (node.op, node.admission)}
    return frozenset(held)


def _follows(node: Node, held: set[str], nodes: Mapping[str, Node], writers: Mapping[str, tuple[str, ...]]) -> bool:
    """Return whether a write goes by the steps of one that may be held, or by what such a one writes."""
    sources = (nodes[name] for cell in node.follows for name in writers.get(cell, ()) if name != node.id)
    return node.paced in held or any(source.eager and source.op in held for source in sources)


def find_undecided(gates: Sequence[Gate], holdable: Iterable[str]) -> frozenset[str]:
    """Return the gates of which no clock tells when they are due: they count what may be held, or what is undecided."""
    held, undecided, firing = frozenset(holdable), set[str](), set[str]()
    for gate in gates:
        followed = {op for group in gate.follows for op in group}
        if gate.every > 1 and followed & (held | firing):
            undecided.add(gate.op)
        if gate.op in undecided or followed & firing:
            firing.add(gate.op)
    return frozenset(undecided)
