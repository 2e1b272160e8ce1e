"""Happens-before: data edges, declared ``after`` edges, and the one implied edge, over all nodes of the document.

The closure covers ops that do not run in a mode too: an ``after`` an absent op is void, but what stood before that op
still stands before its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from compiler.ir.cell import Cell
from compiler.ir.diagnose import cycle_problem
from compiler.ir.digraph import Causality, close, find_cycles, sort
from compiler.ir.instructions import Instruction
from compiler.ir.program import back_of
from compiler.ir.step_graph import Edge, Hazard, find_producers
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import GradientOp
from graphspec.declare.parts import comes_later, is_inside
from graphspec.diagnostics import Diagnostic


def find_ordering(spec: GraphSpec, nodes: Mapping[str, Instruction]) -> tuple[Edge, ...]:
    """Return every happens-before edge between the nodes, with its reason, sorted by the later node's listing."""
    producers = find_producers(nodes.values())
    writers = find_writers(nodes.values())
    edges: list[Edge] = []
    for node in nodes.values():
        edges.extend(data_edges(node, producers))
        for cell, writer in find_sources(node, nodes, writers):
            why = f"{node.label} comes after every writer of its source's {cell}"
            edges.append(Edge(before=writer, after=node.id, hazard=Hazard.IMPLIED, why=why))
        # a share of the gradient of a `gradient` op waits for what the op waits for
        is_share = node.derivative is not None and isinstance(spec.ops[node.op], GradientOp)
        if node.id == node.op or _is_bare_reader(node) or is_share:
            edges.extend(_declared_edges(spec, node, nodes))
    return tuple(edges)


def find_data_ordering(
    nodes: Mapping[str, Instruction], among: Mapping[str, Instruction] | None = None
) -> tuple[Edge, ...]:
    """Return the happens-before edges to the nodes, or to some of them, that values give alone."""
    users = nodes if among is None else among
    producers = find_producers(nodes.values()) if users else {}
    return tuple(edge for node in users.values() for edge in data_edges(node, producers))


def sort_by_data(nodes: Mapping[str, Instruction]) -> tuple[str, ...]:
    """Return the nodes, each after those whose values it uses; their data edges must have no cycle."""
    producers = find_producers(nodes.values())
    return sort(
        {name: [producers[use.value] for use in node.uses if use.value in producers] for name, node in nodes.items()}
    )


def find_writers(nodes: Iterable[Instruction]) -> dict[Cell, tuple[str, ...]]:
    """Return the nodes that write each cell, in listed order."""
    writers: dict[Cell, list[str]] = {}
    for node in nodes:
        for write in node.writes:
            writers.setdefault(write.cell, []).append(node.id)
    return {cell: tuple(names) for cell, names in writers.items()}


def close_ordering(nodes: Mapping[str, Instruction], edges: Iterable[Edge]) -> Causality:
    """Return which of the nodes that write or differentiate come before which; the edges must have no cycle."""
    predecessors: dict[str, list[str]] = {node: [] for node in nodes}
    for edge in edges:
        predecessors[edge.after].append(edge.before)
    return close(predecessors, {name for name, node in nodes.items() if node.writes or node.derivative is not None})


def restrict_ordering(
    edges: tuple[Edge, ...], nodes: Mapping[str, Instruction], causality: Causality
) -> tuple[Edge, ...]:
    """Return the edges between some of the nodes, and those that remain where others do not fire.

    What stood before an absent node still stands before its neighbours. ``causality``: what all the edges say together.
    """
    kept = [edge for edge in edges if edge.before in nodes and edge.after in nodes]
    before: dict[str, list[str]] = {}
    for edge in edges:
        before.setdefault(edge.after, []).append(edge.before)
    for name, node in nodes.items():
        for other in _find_past_absent(name, before, nodes, causality):
            why = f"{node.label} comes after {nodes[other].label} through ops that do not run here"
            kept.append(Edge(before=other, after=name, hazard=Hazard.DECLARED, why=why))
    return tuple(kept)


def _find_past_absent(
    name: str, before: Mapping[str, list[str]], nodes: Mapping[str, Instruction], causality: Causality
) -> tuple[str, ...]:
    """Return the present nodes that lead to a node through absent ones only.

    What comes before an absent node is left out where that itself comes before another one that is found.
    """
    pending = [other for other in before.get(name, ()) if other not in nodes]
    seen, found = set(pending), dict[str, None]()
    for absent in pending:  # it grows: the nearest first
        others = [each for each in before.get(absent, ()) if each not in seen]
        found.update(dict.fromkeys(each for each in others if each in nodes))
        fresh = [each for each in others if each not in nodes]
        seen.update(fresh)
        for each in fresh:
            is_implied = each in causality.places and any(causality.precedes(each, other) for other in found)
            pending += [] if is_implied else [each]
    return tuple(found)


def find_order_problems(
    spec: GraphSpec, nodes: Mapping[str, Instruction], edges: tuple[Edge, ...]
) -> tuple[Diagnostic, ...]:
    """Return E-CYCLE for every strongly connected component of happens-before edges."""
    cycles = find_cycles((edge.before, edge.after) for edge in edges)
    return tuple(cycle_problem("E-CYCLE", spec, nodes, edges, cycle) for cycle in cycles)


def data_edges(node: Instruction, producers: Mapping[str, str]) -> Iterator[Edge]:
    """Yield an edge from the producer of every value the node uses."""
    for use in node.uses:
        producer = producers.get(use.value)
        if producer is not None:
            why = f"{node.label} uses the value {use.value}"
            yield Edge(before=producer, after=node.id, hazard=Hazard.DATA, why=why)


def _is_bare_reader(node: Instruction) -> bool:
    """Return whether a node of an op only reads cells, as a clip by weights does: it sees the versions the op sees.

    Penalties are part of a gradient, which is taken where its forwards are.
    """
    return bool(node.reads) and not node.writes and node.penalizes is None


def _declared_edges(spec: GraphSpec, node: Instruction, nodes: Mapping[str, Instruction]) -> Iterator[Edge]:
    """Yield an edge from every op named by ``after``, and from the update named by ``every``.

    An op's ``after`` holds back the node that carries its name, and what else of it reads cells: of an update the write
    and a clip by weights; not the gradient and its penalties, fixed by the versions that its forwards read.
    """
    op = spec.ops[node.op]
    for name in op.after or ():
        # of an average also the write by which its source takes it
        for before in (name, back_of(name)):
            if before in nodes:
                why = f"{node.op} is declared `after: {name}`"
                yield Edge(before=before, after=node.id, hazard=Hazard.DECLARED, why=why)
    if isinstance(op.every, str) and op.every in nodes:
        why = f"{node.op} is declared `every: {op.every}`"
        yield Edge(before=op.every, after=node.id, hazard=Hazard.DECLARED, why=why)


def find_sources(
    node: Instruction, nodes: Mapping[str, Instruction], writers: Mapping[Cell, tuple[str, ...]]
) -> Iterator[tuple[Cell, str]]:
    """Yield the writers of what an average or copy reads, which it comes after, with the cell of each.

    In an iteration these are the writers in it, where there are some, and otherwise all but those of later ones.
    """
    for cell in sorted(node.follows, key=str):
        others = (each for each in writers.get(cell, ()) if each != node.id)
        found = [each for each in others if not nodes[each].comes_back_from(node)]
        within = [each for each in found if is_inside(nodes[each].within, node.within)]
        for writer in within or found:
            if not comes_later(nodes[writer].within, node.within):
                yield cell, writer
