"""Where a ``stop`` cuts nothing, and why: a gradient is only taken for the models of its update."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from compiler.ir.instructions import Evaluate, Forward, Gradient, Instruction
from compiler.ir.step_graph import StepGraph, find_producers
from compiler.passes.paths import find_paths, find_reaching
from compiler.passes.schedule import is_update
from compiler.plan.formula import Lines
from graphspec.declare.ops import ForwardOp, GradientOp, Op


def explain_stops(graph: StepGraph, lines: Lines, instruction: Instruction, op: Op) -> Iterator[str]:
    """Yield a sentence for every ``stop`` in the line of an instruction without which every gradient is the same.

    It may still say what its writer means, so it is no warning. Where no update runs, as in evaluations, nothing is to
    be said.
    """
    for each in lines.find(instruction) if any(map(is_update, graph.nodes.values())) else ():
        match each, op:
            case Evaluate(), _ if each.function.builtin and each.function.name == "stop":
                stop = lines.spell(each)
            case ((Forward() | Gradient()), ForwardOp(stop=True) | GradientOp(stop=True)):
                stop = "stop: true"
            case _:
                continue
        if why := _explain_needless(graph, graph.nodes[each.id]):
            yield f"`{stop}` cuts nothing: {why}"


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
