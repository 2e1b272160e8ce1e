"""Places in sentences: they differ between files that say the same."""

from __future__ import annotations

from compiler.ir import StepGraph


def drop_places(text: str, graph: StepGraph) -> str:
    """Return a sentence about a graph without the places of its ops."""
    for place in {node.place for node in graph.nodes.values()}:
        text = text.replace(f" ({place})", "") if place else text
    return text
