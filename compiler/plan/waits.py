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
    for name in (name for name, node in graph.nodes.items() if node.is_write):
        implied = unite_all(causality.pasts[each] for each in before[name])
        last = (each for each in before[name] if not intersect(causality.collect((each,)), implied)[1])
        pairs = (before[name][each] for each in last)
        holding = [edge for edges in pairs if not any(each.hazard in CARRYING for each in edges) for edge in edges]
        found |= {name: tuple(holding)} if holding else {}
    return found
