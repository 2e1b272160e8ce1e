"""What would go wrong if an op wrote earlier, or later, than it does."""

from __future__ import annotations

from typing import Literal, TypeAlias

from compiler.ir.step_graph import Edge, Hazard, StepGraph
from compiler.plan.compiled_step import CompiledStep
from graphspec.diagnostics import escape

Way: TypeAlias = Literal["earlier", "later"]


def explain_why_not(plan: CompiledStep, op: str, way: Way) -> str:
    """Return what would go wrong if an op wrote earlier or later, by function, the nearest obstacle first."""
    is_before, lines = way == "earlier", [f"{op}: why not {way}"]
    said: dict[tuple[str, ...], list[str]] = {}
    for function, graph in plan.graphs.items():
        found: list[str] = []
        place = {name: index for index, name in enumerate(graph.sequence)}
        for name in (each for each in graph.sequence if graph.nodes[each].op == op and graph.nodes[each].writes):
            edges = [edge for edge in graph.edges if (edge.after if is_before else edge.before) == name]
            others = {(edge.before if is_before else edge.after): edge for edge in edges}
            if not others:
                nothing = f"nothing {'comes before' if is_before else 'waits for'} it"
                found.append(f"{graph.nodes[name].label} could stand {way}: {nothing}")
            for other in sorted(others, key=lambda each: abs(place[each] - place[name])):
                node = graph.nodes[other]
                shift = f"{'before' if is_before else 'after'} {node.label}"
                at = f" ({node.place})" if node.place and not node.combined else ""
                found.append(f"{shift}: {_tell(graph, others[other])}{at}")
        if found:
            said.setdefault(tuple(found), []).append(function)
    lines += [] if said else ["", "it writes in no step"]
    for sentences, functions in said.items():
        where = "every function" if len(functions) == len(plan.graphs) > 1 else ", ".join(functions)
        lines += ["", f"in {where}", *(f"  {sentence}" for sentence in sentences)]
    return "\n".join(map(escape, lines)) + "\n"


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
            return f"whether {first.condition} would not be known yet"
        case Hazard.DECLARED | Hazard.IMPLIED:
            return edge.why
