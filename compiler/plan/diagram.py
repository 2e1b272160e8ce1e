"""The plan as a picture, Mermaid and Graphviz text with hazards as dashed arrows, and as a networkx graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from compiler.ir.instructions import Instruction
from compiler.ir.step_graph import Edge, Hazard, StepGraph
from compiler.plan.compiled_step import CompiledStep
from compiler.plan.formula import Lines, find_lines
from compiler.plan.reachable_functions import describe_steps
from compiler.plan.text import cells_of, describe_function, flags_of, list_details
from compiler.plan.waits import CARRYING
from graphspec.diagnostics import escape

if TYPE_CHECKING:
    import networkx

_MERMAID = str.maketrans({'"': "'", "`": "'", "<": "#lt;", ">": "#gt;"})
"""Mermaid has no escapes in labels, and reads HTML and Markdown in them."""
_WORDS: Mapping[Hazard, str] = {
    Hazard.DECLARED: "after",
    Hazard.IMPLIED: "follows what it averages or copies",
    Hazard.RAW: "reads what it wrote",
    Hazard.WAR: "reads the version before",
    Hazard.BACKWARD_WAR: "gradient needs the version before",
    Hazard.BUFFER_WAR: "gradient needs the buffers before",
    Hazard.WAW: "writes before",
    Hazard.VERDICT: "verdict",
}
"""What an arrow says of why one instruction precedes another."""
BELOW = ("optimizers", "groups", "schedules", "moments", "overflow")
"""What stands in a box of its own below the functions, as below the text of a plan."""


class Arrow(Struct, frozen=True, kw_only=True):
    """One arrow of a picture."""

    before: str
    after: str
    label: str
    dashed: bool


def draw_mermaid(plan: CompiledStep, mode: str) -> str:
    """Return the plan of a mode as a Mermaid flowchart, one subgraph per function."""
    lines = ["flowchart TD"]
    for name, graph in plan.graphs_of(mode).items():
        lines.append(f'  subgraph {name}["{_write_box(*_title(plan, mode, name))}"]')
        ids, flags = _name_nodes(name, graph), _find_flags(plan, name)
        lines_of = Lines.of(graph.nodes.values())
        for node in (node for node in graph.sequence if node in ids):
            text = _write_box(*_describe(graph.nodes[node], lines_of, flags))
            box = f'(["{text}"])' if graph.nodes[node].is_write else f'["{text}"]'  # writes are rounded
            lines.append(f"    {ids[node]}{box}")
        for arrow in find_arrows(graph):
            line, label = "-.->" if arrow.dashed else "-->", f"|{arrow.label}|" if arrow.label else ""
            lines.append(f"    {ids[arrow.before]} {line}{label} {ids[arrow.after]}")
        lines.append("  end")
    lines += [f'  {title}["{_write_box(title, *found)}"]' for title, found in _find_below(plan, mode)]
    return "\n".join(lines) + "\n"


def draw_dot(plan: CompiledStep, mode: str) -> str:
    """Return the plan of a mode as a Graphviz digraph, one cluster per function."""
    lines = [f"digraph {_quote(plan.program.name)} {{", "  node [shape=box, fontname=Helvetica];"]
    for name, graph in plan.graphs_of(mode).items():
        title = _quote(*_title(plan, mode, name))
        lines += [f"  subgraph {_quote('cluster_' + name)} {{", f"    label={title};"]
        ids, flags = _name_nodes(name, graph), _find_flags(plan, name)
        lines_of = Lines.of(graph.nodes.values())
        for node in (node for node in graph.sequence if node in ids):
            style = ", style=bold" if graph.nodes[node].is_write else ""
            lines.append(f"    {ids[node]} [label={_quote(*_describe(graph.nodes[node], lines_of, flags))}{style}];")
        for arrow in find_arrows(graph):
            style = ", style=dashed" if arrow.dashed else ""
            label = _quote(arrow.label)
            lines.append(f"    {ids[arrow.before]} -> {ids[arrow.after]} [label={label}{style}];")
        lines.append("  }")
    lines += [f"  {title} [label={_quote(title, *found)}, shape=note];" for title, found in _find_below(plan, mode)]
    return "\n".join([*lines, "}"]) + "\n"


def find_arrows(graph: StepGraph) -> Iterator[Arrow]:
    """Yield one arrow per ordered pair: data and read-after-write solid, the others dashed, and why.

    The parts of an expression are one with what they are written into.
    """
    pairs: dict[tuple[str, str], list[Edge]] = {}
    lines = find_lines(graph)
    for edge in graph.edges:
        before, after = lines.get(edge.before, edge.before), lines.get(edge.after, edge.after)
        if before != after:
            pairs.setdefault((before, after), []).append(edge)
    for (before, after), edges in pairs.items():
        kinds = dict.fromkeys(_WORDS[edge.hazard] for edge in edges if edge.hazard is not Hazard.DATA)
        dashed = not any(edge.hazard in CARRYING for edge in edges)
        yield Arrow(before=before, after=after, label=", ".join(kinds), dashed=dashed)


def _name_nodes(function: str, graph: StepGraph) -> Mapping[str, str]:
    """Return an identifier for every node with a line that both syntaxes accept and no two nodes share."""
    inlined = find_lines(graph)
    shown = [name for name in graph.sequence if name not in inlined]
    return {name: f"{function}_n{number}" for number, name in enumerate(shown, start=1)}


def _title(plan: CompiledStep, mode: str, name: str) -> tuple[str, str]:
    """Return the name of a function, and what it writes and when, as above its lines in the text."""
    program = plan.program.mode(mode)
    steps = describe_steps(program, plan.program)
    function = next(each for each in program.functions if each.name == name)
    return name, describe_function(plan, function, steps.get(name, ""))


def _find_flags(plan: CompiledStep, name: str) -> Mapping[str, tuple[str, ...]]:
    """Return what is special about how the instructions of a function run, by node."""
    functions = (function for mode in plan.program.modes for function in mode.functions)
    return {
        each.id: flags_of(each) for function in functions if function.name == name for each in function.instructions
    }


def _describe(node: Instruction, lines: Lines, flags: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the lines of a box: what an instruction does, the versions it reads and writes, and how it runs."""
    line = lines.find(node)
    special = ", ".join(flag for each in line for flag in flags.get(each.id, ()))
    return tuple(filter(None, (lines.write(node), cells_of(line), f"({special})" if special else "")))


def _find_below(plan: CompiledStep, mode: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the titles and sentences of what stands below the functions."""
    yield from ((title, found) for title, found in list_details(plan, mode).items() if title in BELOW)


def _write_box(*lines: str) -> str:
    """Return the lines of a box of Mermaid."""
    return "<br/>".join(escape(line).translate(_MERMAID) for line in lines)


def _quote(*lines: str) -> str:
    """Return lines as one string in double quotes."""
    escaped = (escape(line).replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    text = "\\n".join(escaped)
    return f'"{text}"'


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
