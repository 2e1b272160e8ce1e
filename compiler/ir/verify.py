"""Invariants of the step graph, checked between passes in tests and by `verify=True`."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.ir.cell import Cell
from compiler.ir.digraph import find_cycles
from compiler.ir.step_graph import StepGraph


class InvariantError(AssertionError):
    """A pass left the graph in a state that no spec can justify: a defect of the compiler."""


def verify(after: str, graph: StepGraph) -> None:
    """Raise InvariantError with every violated invariant, naming the pass that ran last."""
    broken = list(find_violations(graph))
    if broken:
        raise InvariantError(f"after {after}: " + "; ".join(broken))


def find_violations(graph: StepGraph) -> Iterator[str]:
    """Yield every violated invariant of a graph, regardless of which passes have run."""
    for edge in graph.edges:
        if edge.before not in graph.nodes or edge.after not in graph.nodes:
            yield f"edge {edge.before} -> {edge.after} has an end outside the graph"
    makers: dict[str, str] = {}
    for node in graph.nodes.values():
        for value in node.provides:
            if value in makers:
                yield f"value {value} is defined by {makers[value]} and {node.id}"
            makers[value] = node.id
    for cell, writers in graph.writers.items():
        made = [write.version for name in writers for write in graph.nodes[name].writes if write.cell == cell]
        if made != list(range(1, len(writers) + 1)):
            yield f"the writers of {cell} make versions {made}"
    for name, node in graph.nodes.items() if graph.writers else ():
        for access in (*node.reads, *node.writes):
            if not 0 <= access.version <= len(graph.writers.get(access.cell, ())):
                yield f"{name} accesses {access}, which never exists"
    if not graph.sequence:
        return
    if sorted(graph.sequence) != sorted(graph.nodes):
        yield "the sequence is not a permutation of the nodes"
    else:
        position = graph.position
        for edge in graph.edges:
            if position[edge.before] >= position[edge.after]:
                yield f"{edge.after} stands before {edge.before} ({edge.hazard.value})"
        if find_cycles((edge.before, edge.after) for edge in graph.edges):
            yield "the edges have a cycle"
    # Versions are replayed on counters instead of trusting the edges: the property all edges exist for. A value that
    # nothing defines is an input.
    undefined = {value for node in graph.nodes.values() for value in node.provides}
    current: dict[Cell, int] = {}
    for node in (graph.nodes[name] for name in graph.sequence):
        for use in node.uses:
            if use.value in undefined:
                yield f"{node.id} uses {use.value} before it is made"
        undefined.difference_update(node.provides)
        for read in node.reads:
            have = current.get(read.cell, 0)
            if have != read.version:
                yield f"{node.id} should read {read} and would find version {have}"
        current.update((write.cell, write.version) for write in node.writes)
