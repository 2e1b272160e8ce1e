"""Find the hazard edges: which instruction must precede which so that every one sees the versions it should."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from compiler.ir.cell import CellVersion
from compiler.ir.diagnose import cycle_problem
from compiler.ir.digraph import find_cycles
from compiler.ir.hazard_table import HazardTable
from compiler.ir.instructions import Instruction
from compiler.ir.step_graph import Edge, Hazard, StepGraph
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
    kept = {(edge.before, edge.after) for edge in rigid}
    while cycles := find_cycles((edge.before, edge.after) for edge in graph.edges):
        cycle = cycles[0]  # it is broken by clones for the forwards of its first buffer hazard
        pairs = set(zip(cycle, (*cycle[1:], cycle[0]), strict=True)) - kept
        buffered = (edge for edge in graph.hazards if edge.hazard is Hazard.BUFFER_WAR)
        breakable = next(edge for edge in buffered if (edge.before, edge.after) in pairs)
        cloned = frozenset(breakable.through)
        hazards = tuple(
            edge
            for edge in graph.hazards
            if edge.hazard is not Hazard.BUFFER_WAR or not cloned.issuperset(edge.through)
        )
        snapshots = {**graph.snapshots, **dict.fromkeys(breakable.through, "buffers")}
        graph = replace(graph, hazards=hazards, snapshots=snapshots)
    return graph


def _find_cell_hazards(graph: StepGraph) -> Iterator[Edge]:
    """Yield the edges every backend has: read after write, write after read, write after write."""
    for name, node in graph.nodes.items():
        for read in node.reads:
            at = read.at
            writers = graph.writers.get(at.cell, ())
            if at.version > 0 and writers[at.version - 1] != name:
                why = f"{node.label} reads {at}"
                yield Edge(before=writers[at.version - 1], after=name, hazard=Hazard.RAW, cell=at, why=why)
            if at.version < len(writers) and writers[at.version] != name:
                why = f"{node.label} still reads {at}"
                yield Edge(before=name, after=writers[at.version], hazard=Hazard.WAR, cell=at, why=why, through=(name,))
        for write in node.writes:
            at = write.at
            if at.version > 1:
                before = graph.writers[at.cell][at.version - 2]
                why = f"{node.label} writes {at} over what {graph.nodes[before].label} wrote"
                yield Edge(before=before, after=name, hazard=Hazard.WAW, cell=at, why=why)


def _find_order_hazards(graph: StepGraph) -> Iterator[Edge]:
    """Yield an edge from every train-mode forward of a model to an average or copy that writes the model.

    The statistics such a forward writes belong to the version that the other writer ends, under any buffers policy.
    """
    for cell, names in graph.writers.items():
        statistics = [name for name in names if not graph.nodes[name].is_write] if cell.kind == "buffers" else []
        for name in names:
            for forward in statistics if graph.nodes[name].is_write else ():
                why = f"{graph.nodes[name].label} writes {cell} after all train-mode forwards of the step"
                yield Edge(before=forward, after=name, hazard=Hazard.WAW, why=why)


def _find_verdict_hazards(graph: StepGraph) -> Iterator[Edge]:
    """Yield an edge to every write from the verdicts under which it takes place, but for its own."""
    for name, commit in graph.commits.items():
        node = graph.nodes[name]
        for verdict in dict.fromkeys(each for way in commit for each in way if each != node.verdict):
            check = graph.nodes[graph.producers[verdict]]
            if check.op == node.op and not check.combined:
                continue  # what it uses anyway
            why = f"{node.label} takes place only if {check.condition}"
            yield Edge(before=check.id, after=name, hazard=Hazard.VERDICT, why=why)


def _find_backward_hazards(graph: StepGraph, table: HazardTable) -> Iterator[Edge]:
    """Yield, for every gradient, an edge to the next writer of each cell that it still reads on its path.

    A train-mode forward normalizes with the batch's own statistics: later train-mode forwards do not disturb it, other
    writers of the buffers do. A forward that is recomputed reads the model itself, so that clones of its buffers do not
    help.
    """
    for gradient, path in graph.paths.items():
        through: dict[tuple[str, CellVersion, bool, bool], list[Instruction]] = {}
        for name in sorted(path.nodes, key=graph.listing.__getitem__):
            node = graph.nodes[name]
            for read in node.reads:
                writers = graph.writers.get(read.cell, ())
                later = (writers[place] for place in range(read.version, len(writers)))
                writer = next((each for each in later if not read.streaming or graph.nodes[each].is_write), None)
                if writer is not None and (read.again or (read.saved and table.keeps_cells)):
                    through.setdefault((writer, read.at, read.again, read.saved), []).append(node)
        for (writer, at, again, _), forwards in through.items():
            reads = "recomputes with" if again else "reads"
            places = ", ".join(f"{node.op} ({node.place})" if node.place else node.op for node in forwards)
            yield Edge(
                before=gradient,
                after=writer,
                hazard=Hazard.BUFFER_WAR if at.cell.kind == "buffers" and not again else Hazard.BACKWARD_WAR,
                cell=at,
                why=f"{graph.nodes[gradient].label} still {reads} {at} through {places}",
                through=tuple(node.id for node in forwards),
            )


def place_of(graph: StepGraph, edge: Edge) -> str:
    """Return the place in the spec an edge is about: its first forward's, else that of the op before."""
    return graph.nodes[edge.through[0] if edge.through else edge.before].place
