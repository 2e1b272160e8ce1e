"""Explanations of one op: where it stands, what it sees, and why."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.ir.cell import CellVersion
from compiler.ir.diagnose import place_in
from compiler.ir.instructions import Instruction
from compiler.ir.step_graph import Edge, Hazard, StepGraph
from compiler.passes.schedule import is_update
from compiler.plan.compiled_step import CompiledStep
from compiler.plan.text import cells_of
from graphspec.diagnostics import escape


def explain_op(plan: CompiledStep, op: str) -> str:
    """Return everything that was decided about an op, by the functions in which it runs."""
    place = place_in(plan.spec.span("ops", op, key=True))
    lines = [f"{op}: {plan.spec.ops[op].kind}" + (f" ({place})" if place else "")]
    explained: dict[tuple[str, ...], list[str]] = {}
    for name, graph in plan.graphs.items():
        explained.setdefault(tuple(_explain_in(plan, graph, name, op)), []).append(name)
    for sentences, functions in explained.items():
        lines += ["", f"in {', '.join(functions)}", *(f"  {sentence}" for sentence in sentences)]
    return "\n".join(map(escape, lines)) + "\n"


def _explain_in(plan: CompiledStep, graph: StepGraph, function: str, op: str) -> Iterator[str]:
    """Yield sentences about an op in one function."""
    nodes = [graph.nodes[name] for name in graph.sequence if graph.nodes[name].op == op]
    if not nodes:
        yield "does not run"
        return
    instructions = find_instructions(plan, graph, function)
    total = len(graph.sequence)
    for node in nodes:
        number = graph.sequence.index(node.id) + 1
        instruction = instructions[node.id]
        cells = cells_of(instruction)
        yield f"{number} of {total}: {instruction.kind()} {instruction.phrase}" + (f"  [{cells}]" if cells else "")
        yield from (f"  {sentence}" for sentence in _explain_node(graph, node))


def _explain_node(graph: StepGraph, node: Instruction) -> Iterator[str]:
    """Yield the decisions about a node, then why it stands where it stands."""
    for decision in graph.decisions:
        if decision.node == node.id:
            yield f"{decision.code}: {decision.text}"
    if is_update(node) and not any(d.node == node.id and d.code == "DEFER" for d in graph.decisions):
        yield f"{node.label} follows its gradient at once: no later instruction reads what it overwrites"
    yield from _explain_versions(graph, node)
    yield from _explain_position(graph, node)


def _explain_versions(graph: StepGraph, node: Instruction) -> Iterator[str]:
    """Yield which versions a forward sees, and which writes it does not see."""
    for read in node.reads if node.called is not None else ():
        why = explain_version(graph, read.at)
        if why:
            yield f"reads {read}{why}"


def explain_version(graph: StepGraph, at: CellVersion) -> str:
    """Return why a read sees a version, as the end of a sentence; empty where no other op writes the cell."""
    writers = graph.writers.get(at.cell, ())
    seen, unseen = writers[: at.version], writers[at.version :]
    if seen:
        return f": it comes after {_ops(graph, seen)}"
    return f", as at the start of the step: no `after` puts it behind {_ops(graph, unseen)}" if unseen else ""


def _explain_position(graph: StepGraph, node: Instruction) -> Iterator[str]:
    """Yield what must come before a write, and what must wait for it."""
    if not node.eager:
        return
    for edge in _distinct(edge for edge in graph.edges if edge.after == node.id and edge.hazard is not Hazard.DATA):
        yield f"after {graph.nodes[edge.before].label} ({edge.hazard.value}): {edge.why}"
    for edge in _distinct(edge for edge in graph.edges if edge.before == node.id and edge.hazard is not Hazard.DATA):
        yield f"before {graph.nodes[edge.after].label} ({edge.hazard.value}): {edge.why}"


def _distinct(edges: Iterator[Edge]) -> tuple[Edge, ...]:
    """Return edges, one per sentence."""
    return tuple({(edge.before, edge.after, edge.why): edge for edge in edges}.values())


def find_instructions(plan: CompiledStep, graph: StepGraph, function: str) -> dict[str, Instruction]:
    """Return the finished instruction of every node of a function, in sequence."""
    functions = plan.program.mode(graph.mode).functions
    finished = next(item for item in functions if item.name == function).instructions
    kept = [instruction for instruction in finished if instruction.kind() not in ("release", "settle", "emit")]
    return dict(zip(graph.sequence, kept, strict=True))


def _ops(graph: StepGraph, nodes: tuple[str, ...]) -> str:
    """Return nodes by the names of their ops."""
    return ", ".join(graph.nodes[name].op for name in nodes)
