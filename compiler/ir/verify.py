"""Invariants of the step graph, checked between passes in tests and by `verify=True`."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.ir.cell import Cell
from compiler.ir.digraph import find_cycles
from compiler.ir.step_graph import StepGraph


class InvariantError(AssertionError):
    """A pass left the graph in a state that no spec can justify: a defect of the compiler."""


def verify(graph: StepGraph, after: str) -> None:
    """Raise InvariantError with every violated invariant, naming the pass that ran last."""
    broken = list(find_violations(graph))
    if broken:
        raise InvariantError(f"after {after}: " + "; ".join(broken))


def find_violations(graph: StepGraph) -> Iterator[str]:
    """Yield every violated invariant of a graph, regardless of which passes have run."""
    yield from _find_dangling(graph)
    if graph.writers:
        yield from _find_wrong_versions(graph)
    if graph.sequence:
        yield from _find_disorder(graph)
        yield from _find_undefined(graph)
        yield from _find_wrong_reads(graph)


def _find_dangling(graph: StepGraph) -> Iterator[str]:
    """Yield edges and values with missing ends."""
    for edge in graph.edges:
        if edge.before not in graph.nodes or edge.after not in graph.nodes:
            yield f"edge {edge.before} -> {edge.after} has an end outside the graph"
    defined: dict[str, str] = {}
    for node in graph.nodes.values():
        for value in node.provides:
            if value in defined:
                yield f"value {value} is defined by {defined[value]} and {node.id}"
            defined[value] = node.id


def _find_wrong_versions(graph: StepGraph) -> Iterator[str]:
    """Yield writers that do not make consecutive versions, and accesses to versions that never exist."""
    for cell, writers in graph.writers.items():
        made = [write.version for name in writers for write in graph.nodes[name].writes if write.cell == cell]
        if made != list(range(1, len(writers) + 1)):
            yield f"the writers of {cell} make versions {made}"
    for name, node in graph.nodes.items():
        for access in (*node.reads, *node.writes):
            if not 0 <= access.version <= len(graph.writers.get(access.cell, ())):
                yield f"{name} accesses {access}, which never exists"


def _find_disorder(graph: StepGraph) -> Iterator[str]:
    """Yield missing or repeated nodes and violated edges of a sequence."""
    if sorted(graph.sequence) != sorted(graph.nodes):
        yield "the sequence is not a permutation of the nodes"
        return
    position = {name: index for index, name in enumerate(graph.sequence)}
    for edge in graph.edges:
        if position[edge.before] >= position[edge.after]:
            yield f"{edge.after} stands before {edge.before} ({edge.hazard.value})"
    if find_cycles((edge.before, edge.after) for edge in graph.edges):
        yield "the edges have a cycle"


def _find_undefined(graph: StepGraph) -> Iterator[str]:
    """Yield uses of values before their definition; a value that nothing defines is an input."""
    everything = {value for node in graph.nodes.values() for value in node.provides}
    defined: set[str] = set()
    for name in graph.sequence:
        for use in graph.nodes[name].uses:
            if use.value in everything - defined:
                yield f"{name} uses {use.value} before it is made"
        defined.update(graph.nodes[name].provides)


def _find_wrong_reads(graph: StepGraph) -> Iterator[str]:
    """Yield nodes that, run in sequence, would read or overwrite another version than they should.

    This replays the sequence on counters instead of trusting the edges: the property all edges exist for.
    """
    current: dict[Cell, int] = {}
    for name in graph.sequence:
        for read in graph.nodes[name].reads:
            have = current.get(read.cell, 0)
            if have != read.version:
                yield f"{name} should read {read} and would find version {have}"
        current.update((write.cell, write.version) for write in graph.nodes[name].writes)
