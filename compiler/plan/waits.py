"""What a write waits for: what must come before it for another reason than that it uses the result."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.digraph import close, intersect, unite_all
from compiler.ir.step_graph import Edge, Hazard, StepGraph

CARRYING = (Hazard.DATA, Hazard.RAW)
"""Edges that carry a value or a version; the rest only hold back."""


def find_waits(graph: StepGraph) -> Mapping[str, tuple[Edge, ...]]:
    """Return by write the edges that hold it back, without those that others imply.

    A write that may follow its own gradient immediately has none.
    """
    before: dict[str, dict[str, list[Edge]]] = {name: {} for name in graph.nodes}
    for edge in graph.edges:
        if edge.before in before and edge.after in before:
            before[edge.after].setdefault(edge.before, []).append(edge)
    causality = close(before, before)
    found: dict[str, tuple[Edge, ...]] = {}
    for name, node in graph.nodes.items():
        if node.is_write:
            implied = unite_all(map(causality.pasts.__getitem__, before[name]))
            holding: list[Edge] = []
            for other, edges in before[name].items():
                is_last = not intersect(causality.collect((other,)), implied)[1]
                if is_last and not any(edge.hazard in CARRYING for edge in edges):
                    holding += edges
            if holding:
                found[name] = tuple(holding)
    return found
