"""What would go wrong if an op wrote earlier, or later, than it does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from compiler.ir.step_graph import Edge, Hazard, StepGraph
from compiler.plan.compiled_step import CompiledStep
from graphspec.diagnostics import escape

Way: TypeAlias = Literal["earlier", "later"]


def explain_why_not(plan: CompiledStep, op: str, way: Way) -> str:
    """Return what would go wrong if an op wrote earlier or later, by function, the nearest obstacle first."""
    lines = [f"{op}: why not {way}"]
    said: dict[tuple[str, ...], list[str]] = {}
    for function, graph in plan.graphs.items():
        sentences = tuple(_explain_graph(graph, op, way))
        if sentences:
            said.setdefault(sentences, []).append(function)
    lines += [] if said else ["", "it writes in no step"]
    for sentences, functions in said.items():
        where = "every function" if len(functions) == len(plan.graphs) > 1 else ", ".join(functions)
        lines += ["", f"in {where}", *(f"  {sentence}" for sentence in sentences)]
    return "\n".join(map(escape, lines)) + "\n"


def _explain_graph(graph: StepGraph, op: str, way: Way) -> Iterator[str]:
    """Yield the sentences about the writes of an op in one function."""
    place = {name: index for index, name in enumerate(graph.sequence)}
    for name in graph.sequence:
        node = graph.nodes[name]
        if node.op != op or not node.writes:
            continue
        edges = [edge for edge in graph.edges if (edge.after if way == "earlier" else edge.before) == name]
        others = {(edge.before if way == "earlier" else edge.after): edge for edge in edges}
        nearest = sorted(others, key=lambda each: abs(place[each] - place[name]))
        if not nearest:
            yield f"{node.label} could stand {way}: nothing {'comes before' if way == 'earlier' else 'waits for'} it"
        for other in nearest:
            before = way == "earlier"
            shift = f"{'before' if before else 'after'} {graph.nodes[other].label}"
            place_of = graph.nodes[other].place
            yield f"{shift}: {_tell(graph, others[other])}" + (f" ({place_of})" if place_of else "")


def _tell(graph: StepGraph, edge: Edge) -> str:
    """Return what would go wrong if the first node of an edge came after the second."""
    first, second = graph.nodes[edge.before], graph.nodes[edge.after]
    cell = edge.cell
    made = None if cell is None else next((write for write in second.writes if write.cell == cell.cell), None)
    newer, older = f"{made or 'a newer version'}", f"@{cell.version}" if cell is not None else "the older one"
    through = f" through {', '.join(edge.through)}" if edge.through else ""
    match edge.hazard:
        case Hazard.DATA:
            return f"{second.label} needs what {first.label} gives"
        case Hazard.WAR:
            return f"{first.label} would read {newer} in place of {older}"
        case Hazard.BACKWARD_WAR | Hazard.BUFFER_WAR:
            return f"{first.label} would run back{through} with {newer}, where {older} was read"
        case Hazard.RAW:
            return f"{second.label} would not see {cell}, which {first.label} writes"
        case Hazard.WAW:
            return f"{first.label} would overwrite what {second.label} writes"
        case Hazard.VERDICT:
            return "whether the gradients are finite would not be known yet"
        case Hazard.DECLARED | Hazard.IMPLIED:
            return edge.why
