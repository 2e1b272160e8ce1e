"""Explanations of one op: where it runs in a step, what it sees, and why."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.ir.cell import CellVersion
from compiler.ir.diagnose import place_in
from compiler.ir.instructions import Instruction, Random
from compiler.ir.instructions.base import find_verdicts
from compiler.ir.step_graph import Edge, Hazard, StepGraph
from compiler.passes.decisions import explain_delay
from compiler.passes.policies import POLICIES, Policy
from compiler.passes.schedule import is_update
from compiler.plan.compiled_step import CompiledStep
from compiler.plan.formula import Lines
from compiler.plan.left_out import find_absence
from compiler.plan.reachable_functions import describe_steps, format_share
from compiler.plan.stops import explain_stops
from compiler.plan.text import cells_of, flags_of
from graphspec.declare.library import RANDOMS
from graphspec.diagnostics import escape


def explain_op(plan: CompiledStep, op: str) -> str:
    """Return everything that was decided about an op, by the functions in which it runs."""
    place = place_in(plan.spec.span("ops", op, key=True))
    declared = plan.spec.ops[op]
    outer, parts = "", list[str]()
    for part in declared.within:
        share = "" if part.low is None or part.high is None else format_share(part.low, part.high, outer)
        parts.append(f"{part} (drawn {share})" if share else str(part))
        outer = part.name if part.is_gated else outer
    clocks = {"every": declared.every, "start": declared.opens, "until": declared.until}
    when = (f"{key}: {value}" for key, value in clocks.items() if value is not None)
    header = (f"{op}: {declared.kind}", *parts, *when)
    text = [", ".join(header) + (f" ({place})" if place else "")]
    explained: dict[tuple[str, ...], list[str]] = {}
    numbers: dict[str, list[int]] = {}
    steps = {name: when for mode in plan.program.modes for name, when in describe_steps(mode, plan.program).items()}
    for function, graph in plan.graphs.items():
        sentences: list[str] = []
        instructions = find_instructions(plan, graph, function)
        lines = Lines.of(instructions.values())
        own = (each for each in instructions.values() if op in each.ops)
        conditions = {verdict for each in own for verdict in find_verdicts(each.commits)}
        sequence = [name for name in graph.sequence if instructions[name].has_line]
        for number, name in enumerate(sequence, start=1):
            node, instruction = graph.nodes[name], instructions[name]
            if op in node.ops or (node.combined and not conditions.isdisjoint(node.defines)):
                numbers.setdefault(function, []).append(number)
                sentences.append(_write_line(lines, instruction))
                policy = POLICIES[plan.program.order]
                said = [*explain_node(graph, node, policy), *_explain_neighbours(graph, node)]
                said += [_list_defaults(instruction)] if isinstance(instruction, Random) else []
                said += explain_stops(graph, lines, instruction, declared)
                sentences += [f"  {sentence}" for sentence in said]
        why = "" if sentences else find_absence(plan.spec, op, graph.mode)
        explained.setdefault(tuple(sentences) or (f"does not run{why and f': it {why}'}",), []).append(function)
    for said, functions in explained.items():
        places: list[str] = []
        for function in functions:
            found = numbers.get(function, [])
            when = f"; {steps[function]}" if function in steps else ""
            lines_of = f"line{'s' if found[1:] else ''} {', '.join(map(str, found))}"
            places.append(f"{function} ({lines_of}{when})" if found else function)
        text += ["", f"in {', '.join(places)}", *(f"  {sentence}" for sentence in said)]
    return "\n".join(map(escape, text)) + "\n"


def explain_storage(plan: CompiledStep, name: str) -> str:
    """Return which lines read and write a model or a state, by the functions in which they do."""
    kind, section = ("model", "models") if name in plan.spec.models else ("state", "state")
    place = place_in(plan.spec.span(section, name, key=True))
    text = [f"{name}: {kind}" + (f" ({place})" if place else "")]
    found: dict[tuple[str, ...], list[str]] = {}
    for function, graph in plan.graphs.items():
        instructions = find_instructions(plan, graph, function).values()
        lines = Lines.of(instructions)
        rows: list[str] = []
        for each in instructions:
            line = lines.find(each) if each.has_line else ()
            cells = (at.at.cell for part in line for at in (*part.reads, *part.writes))
            if any(name in cell.owners and cell.kind in ("params", "tied", "buffers", "state") for cell in cells):
                rows.append(_write_line(lines, each))
        found.setdefault(tuple(rows) or ("nothing reads or writes it",), []).append(function)
    for said, functions in found.items():
        text += ["", f"in {', '.join(functions)}", *(f"  {row}" for row in said)]
    return "\n".join(map(escape, text)) + "\n"


def _write_line(lines: Lines, instruction: Instruction) -> str:
    """Return a line with the versions that it reads and writes, and what is special about it, as a plan has it."""
    line = lines.find(instruction)
    notes = (cells_of(line), ", ".join(flag for each in line for flag in flags_of(each)))
    return f"{instruction.kind()} {lines.write(instruction)}" + "".join(f"  [{note}]" for note in notes if note)


def explain_node(graph: StepGraph, node: Instruction, policy: Policy) -> Iterator[str]:
    """Yield the decisions about a node, whether it waits as an update, and the versions that it sees."""
    decisions = [decision for decision in graph.decisions if decision.node == node.id]
    yield from (f"{decision.code}: {decision.text}" for decision in decisions)
    chosen = explain_delay(node, policy)
    is_deferred = any(decision.code == "DEFER" for decision in decisions)
    if chosen is not None and not is_deferred:
        yield f"{node.label} does not run early: {chosen.text}"
    elif is_update(node) and not is_deferred:
        yield f"{node.label} is not deferred: nothing that comes after its gradient still reads what it overwrites"
    for read in node.reads if node.called is not None else ():
        why = explain_version(graph, read.at, node.id)
        if why:
            yield f"reads {read}{why}"


def _list_defaults(draw: Random) -> str:
    """Return the options of a draw, those that the spec leaves out too: `mean 0, std 1`."""
    options: dict[str, object] = {each.name: each.default for each in RANDOMS[draw.distribution].options}
    options.update(draw.options)
    values = (
        f"{name} {value:g}" if isinstance(value, int | float) else f"{name} {value}" for name, value in options.items()
    )
    return f"{draw.distribution} with {', '.join(values)}" if options else draw.distribution


def _explain_neighbours(graph: StepGraph, node: Instruction) -> Iterator[str]:
    """Yield what reads a value; of a write what must come before it, and what must wait for it."""
    if node.provides:
        carrying = (Hazard.DATA, Hazard.VERDICT) if node.combined else (Hazard.DATA,)
        edges = (edge for edge in graph.edges if edge.before == node.id and edge.hazard in carrying)
        after = (graph.nodes[edge.after] for edge in edges)
        readers = [*dict.fromkeys(each.label for each in after if each.label != node.label)]
        readers += [] if set(node.defines).isdisjoint(graph.outputs) else ["what the step returns"]
        yield f"read by {', '.join(readers) or 'nothing'}"
    if not node.writes:
        return
    edges = [edge for edge in graph.edges if edge.hazard is not Hazard.DATA and node.id in (edge.before, edge.after)]
    for edge in _distinct(edge for edge in edges if edge.after == node.id):
        yield f"after {graph.nodes[edge.before].label} ({edge.hazard.value}): {edge.why}"
    for edge in _distinct(edge for edge in edges if edge.before == node.id):
        yield f"before {graph.nodes[edge.after].label} ({edge.hazard.value}): {edge.why}"


def explain_version(graph: StepGraph, at: CellVersion, reader: str = "") -> str:
    """Return why a read sees a version, as the end of a sentence; empty where no other op writes the cell."""
    writers = graph.writers.get(at.cell, ())
    seen, unseen = writers[: at.version], tuple(name for name in writers[at.version :] if name != reader)
    if seen:
        return f": it comes after {_ops(graph, seen)}"
    return f", as at the start of the step: no `after` puts it after {_ops(graph, unseen)}" if unseen else ""


def _distinct(edges: Iterator[Edge]) -> tuple[Edge, ...]:
    """Return edges, one per sentence."""
    return tuple({(edge.before, edge.after, edge.why): edge for edge in edges}.values())


def find_instructions(plan: CompiledStep, graph: StepGraph, function: str) -> dict[str, Instruction]:
    """Return the finished instruction of every node of a function, in sequence."""
    functions = plan.program.mode(graph.mode).functions
    finished = next(item for item in functions if item.name == function).instructions
    kept = [
        instruction for instruction in finished if instruction.kind() not in ("release", "resolve_overflow", "emit")
    ]
    return dict(zip(graph.sequence, kept, strict=True))


def _ops(graph: StepGraph, nodes: tuple[str, ...]) -> str:
    """Return nodes by the names of their ops."""
    return ", ".join(graph.nodes[name].op for name in nodes)
