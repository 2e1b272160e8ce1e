"""Where a ``stop`` cuts nothing, and why: a gradient is only taken for the models of its update."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from compiler.ir.instructions import Evaluate, Forward, Gradient, Instruction
from compiler.ir.step_graph import StepGraph
from compiler.passes.order import find_producers
from compiler.passes.paths import find_paths, find_reaching
from compiler.passes.schedule import is_update
from compiler.plan.formula import Lines
from graphspec.declare.ops import ForwardOp, GradientOp, Op
from graphspec.write.formula import write_formula


def explain_stops(graph: StepGraph, lines: Lines, instruction: Instruction, op: Op) -> Iterator[str]:
    """Yield a sentence for every ``stop`` in the line of an instruction without which every gradient is the same.

    It may still say what its writer means, so it is no warning. Where no update runs, as in evaluations, nothing is to
    be said.
    """
    if any(map(is_update, graph.nodes.values())):
        for each in lines.find(instruction):
            stop = _find_stop(each, lines, op)
            why = _explain_needless(graph, graph.nodes[each.id]) if stop else ""
            if why:
                yield f"`{stop}` cuts nothing: {why}"


def _find_stop(node: Instruction, lines: Lines, op: Op) -> str:
    """Return the stop that makes a node's results constants, as it is written; empty where none does."""
    match node, op:
        case Evaluate(), _ if node.function.builtin and node.function.name == "stop":
            return write_formula(lines.read(node))
        case ((Forward() | Gradient()), ForwardOp(stop=True) | GradientOp(stop=True)):
            return "stop: true"
        case _:
            return ""


def _explain_needless(graph: StepGraph, node: Instruction) -> str:
    """Return why no gradient would run through a node that were no constant; empty where one would."""
    uses = tuple(replace(use, differentiable=True) for use in node.uses)
    nodes = {**graph.nodes, node.id: replace(node, uses=uses, differentiable=True)}
    paths = find_paths(replace(graph, nodes=nodes)).paths
    if any(node.id in path.nodes for path in paths.values()):
        return ""
    producers = find_producers(nodes.values())
    passing: list[str] = []
    for name in paths:
        derivative = nodes[name].derivative
        loss = "" if derivative is None else producers.get(derivative.loss, "")
        if derivative is not None and loss and node.id in find_reaching(loss, nodes, producers, paths):
            passing.append(f"{nodes[name].label} is for {', '.join((*derivative.models, *derivative.values))}")
    if not passing:
        return "no gradient comes here without it"
    return f"{'; '.join(passing)}, and what is stopped depends on none of these"
