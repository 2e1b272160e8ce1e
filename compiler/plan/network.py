"""The plan as a networkx graph, for questions that no command answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from compiler.ir.step_graph import StepGraph

if TYPE_CHECKING:
    import networkx


def export_network(graph: StepGraph) -> networkx.MultiDiGraph[str]:
    """Return the nodes of a step in the order in which they run, and every constraint between two of them."""
    import networkx  # imported late: it costs 0.1 s

    found: networkx.MultiDiGraph[str] = networkx.MultiDiGraph(mode=graph.mode, active=graph.active)
    for position, name in enumerate(graph.sequence):
        node = graph.nodes[name]
        found.add_node(
            name,
            position=position,
            kind=node.kind(),
            op=node.op,
            label=node.label,
            model=node.called,
            reads=tuple(map(str, node.reads)),
            writes=tuple(map(str, node.writes)),
            place=node.place,
        )
    for edge in graph.edges:
        if edge.before in found and edge.after in found:
            cell = None if edge.cell is None else str(edge.cell)
            found.add_edge(
                edge.before, edge.after, hazard=edge.hazard.value, why=edge.why, cell=cell, through=edge.through
            )
    return found
