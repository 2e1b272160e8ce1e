"""Find the hazard edges: which instruction must precede which so that every one sees the versions it should."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from compiler.ir.cell import CellVersion
from compiler.ir.diagnose import cycle_problem
from compiler.ir.digraph import find_cycles
from compiler.ir.hazard_table import HazardTable
from compiler.ir.step_graph import Edge, Hazard, StepGraph
from compiler.ir.value import Read
from compiler.passes.order import find_producers
from graphspec.declare.graph import GraphSpec


def find_hazards(graph: StepGraph, table: HazardTable) -> StepGraph:
    """Return the graph with every hazard edge of the backend's table."""
    edges = [*_find_cell_hazards(graph), *_find_order_hazards(graph), *_find_verdict_hazards(graph)]
    edges.extend(_find_backward_hazards(graph, table))
    return replace(graph, hazards=tuple(edges))


def resolve_cycles(graph: StepGraph, spec: GraphSpec) -> StepGraph:
    """Return the graph without cycles: a forward whose buffers are needed later than they last runs on clones.

    Cycles that no clone can break are E-TWO-VERSIONS. (E-CYCLE is found before, among happens-before edges.)
    """
    rigid = [edge for edge in graph.edges if edge.hazard is not Hazard.BUFFER_WAR]
    cycles = find_cycles((edge.before, edge.after) for edge in rigid)
    problems = tuple(cycle_problem("E-TWO-VERSIONS", spec, graph.nodes, rigid, cycle) for cycle in cycles)
    if problems:
        return replace(graph, problems=(*graph.problems, *problems))
    while cycles := find_cycles((edge.before, edge.after) for edge in graph.edges):
        graph = _snapshot(graph, cycles[0])
    return graph


def _snapshot(graph: StepGraph, cycle: tuple[str, ...]) -> StepGraph:
    """Return the graph with clones for the forwards of the first buffer hazard on a cycle."""
    pairs = set(zip(cycle, (*cycle[1:], cycle[0]), strict=True))
    rigid = {(edge.before, edge.after) for edge in graph.edges if edge.hazard is not Hazard.BUFFER_WAR}
    breakable = next(
        edge
        for edge in graph.hazards
        if edge.hazard is Hazard.BUFFER_WAR and (edge.before, edge.after) in pairs - rigid
    )
    cloned = frozenset(breakable.through)
    hazards = tuple(edge for edge in graph.hazards if not _is_buffer_hazard_of(edge, cloned))
    snapshots = {**graph.snapshots, **dict.fromkeys(breakable.through, "buffers")}
    return replace(graph, hazards=hazards, snapshots=snapshots)


def _is_buffer_hazard_of(edge: Edge, forwards: frozenset[str]) -> bool:
    """Return whether an edge exists only because of these forwards' buffers."""
    return edge.hazard is Hazard.BUFFER_WAR and forwards.issuperset(edge.through)


def _find_cell_hazards(graph: StepGraph) -> Iterator[Edge]:
    """Yield the edges every backend has: read after write, write after read, write after write."""
    for name, node in graph.nodes.items():
        for read in node.reads:
            yield from _read_edges(graph, name, read.at)
        for write in node.writes:
            if write.version > 1:
                yield _write_edge(graph, name, write.at)


def _read_edges(graph: StepGraph, name: str, at: CellVersion) -> Iterator[Edge]:
    """Yield the edges of one read: after the write of its version, before the write of the next."""
    writers = graph.writers.get(at.cell, ())
    label = graph.nodes[name].label
    if at.version > 0 and writers[at.version - 1] != name:
        writer = writers[at.version - 1]
        yield Edge(before=writer, after=name, hazard=Hazard.RAW, cell=at, why=f"{label} reads {at}")
    if at.version < len(writers) and writers[at.version] != name:
        why = f"{label} still reads {at}"
        yield Edge(before=name, after=writers[at.version], hazard=Hazard.WAR, cell=at, why=why, through=(name,))


def _write_edge(graph: StepGraph, name: str, at: CellVersion) -> Edge:
    """Return the edge from the write of the version before."""
    before = graph.writers[at.cell][at.version - 2]
    why = f"{graph.nodes[name].label} writes {at} over what {graph.nodes[before].label} wrote"
    return Edge(before=before, after=name, hazard=Hazard.WAW, cell=at, why=why)


def _find_order_hazards(graph: StepGraph) -> Iterator[Edge]:
    """Yield an edge from every train-mode forward of a model to an average or copy that writes the model.

    The statistics such a forward writes belong to the version that the other writer ends, under any buffers policy.
    """
    for cell, names in graph.writers.items():
        statistics = [name for name in names if not graph.nodes[name].eager] if cell.kind == "buffers" else []
        for name in names:
            for forward in statistics if graph.nodes[name].eager else ():
                why = f"{graph.nodes[name].label} writes {cell} after all train-mode forwards of the step"
                yield Edge(before=forward, after=name, hazard=Hazard.WAW, why=why)


def _find_verdict_hazards(graph: StepGraph) -> Iterator[Edge]:
    """Yield an edge to every write from the verdicts of others under which it takes place."""
    producers = find_producers(graph.nodes.values())
    for name, commit in graph.commits.items():
        node = graph.nodes[name]
        for verdict in dict.fromkeys(each for way in commit for each in way if each != node.verdict):
            judge = graph.nodes[producers[verdict]]
            if judge.op == node.op:
                continue  # what it uses anyway
            why = f"{node.label} takes place only if the gradients of {judge.op} are finite"
            yield Edge(before=judge.id, after=name, hazard=Hazard.VERDICT, why=why)


def _find_backward_hazards(graph: StepGraph, table: HazardTable) -> Iterator[Edge]:
    """Yield, for every gradient, an edge to the next writer of each cell that it still reads on its path."""
    for gradient, path in graph.paths.items():
        through: dict[tuple[str, CellVersion, bool, bool], list[str]] = {}
        for name in (node for node in graph.nodes if node in path.nodes):
            for writer, read in _find_endangering(graph, name, table):
                through.setdefault((writer, read.at, read.again, read.saved), []).append(name)
        for (writer, at, again, _), forwards in through.items():
            yield _backward_edge(graph, gradient, writer, at, tuple(forwards), again=again)


def _find_endangering(graph: StepGraph, name: str, table: HazardTable) -> Iterator[tuple[str, Read]]:
    """Yield (writer, read) for the next write of every cell that the node's backward reads.

    A train-mode forward normalises with the batch's own statistics: later train-mode forwards do not disturb it, other
    writers of the buffers do.
    """
    for read in graph.nodes[name].reads:
        if not (read.again or (read.saved and table.keeps_cells)):
            continue
        for writer in graph.writers.get(read.cell, ())[read.version :]:
            if not read.streaming or graph.nodes[writer].eager:
                yield writer, read
                break


def _backward_edge(
    graph: StepGraph, gradient: str, writer: str, at: CellVersion, forwards: tuple[str, ...], *, again: bool
) -> Edge:
    """Return the edge from a gradient to a writer of what it still reads.

    A forward that is recomputed reads the model itself, so that clones of its buffers do not help.
    """
    reads = "recomputes with" if again else "reads"
    places = ", ".join(_with_place(graph, name) for name in forwards)
    return Edge(
        before=gradient,
        after=writer,
        hazard=Hazard.BUFFER_WAR if at.cell.kind == "buffers" and not again else Hazard.BACKWARD_WAR,
        cell=at,
        why=f"{graph.nodes[gradient].label} still {reads} {at} through {places}",
        through=forwards,
    )


def place_of(graph: StepGraph, edge: Edge) -> str:
    """Return the place in the spec an edge is about: its first forward's, else that of the op before."""
    return graph.nodes[edge.through[0] if edge.through else edge.before].place


def _with_place(graph: StepGraph, name: str) -> str:
    """Return a node's op with its place in the spec."""
    place = graph.nodes[name].place
    return f"{graph.nodes[name].op} ({place})" if place else graph.nodes[name].op
