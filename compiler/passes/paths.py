"""Find P(g) of every gradient: the nodes on a differentiable path from its targets to its loss."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from compiler.ir.digraph import sort
from compiler.ir.instructions import Instruction
from compiler.ir.step_graph import GradientPath, StepGraph
from compiler.ir.value import Derivative
from compiler.passes.order import find_producers


def find_paths(graph: StepGraph) -> StepGraph:
    """Return the graph with the path of every gradient; inner gradients first, since outer paths contain theirs."""
    producers = find_producers(graph.nodes.values())
    paths: dict[str, GradientPath] = {}
    gradients = [name for name, node in graph.nodes.items() if node.derivative is not None]
    for name in graph.causality.sort(gradients):
        derivative = graph.nodes[name].derivative
        assert derivative is not None
        paths[name] = find_path(derivative, graph.nodes, producers, paths)
    return replace(graph, paths=paths)


def find_path(
    derivative: Derivative,
    nodes: Mapping[str, Instruction],
    producers: Mapping[str, str],
    inner: Mapping[str, GradientPath],
) -> GradientPath:
    """Return the path of one derivative, given the paths of the gradients it may differentiate again.

    A gradient on the path brings its whole inner path along: differentiating it again reads all of that.
    """
    if derivative.loss not in producers:
        return GradientPath(nodes=frozenset(), uses=frozenset())
    reaching = find_reaching(producers[derivative.loss], nodes, producers, inner)
    # Targets that the loss reaches by other results of the nodes that make them, with these nodes.
    used = {use.value for name in reaching for use in nodes[name].uses if use.differentiable} | {derivative.loss}
    begun = frozenset(
        (value, name)
        for name in reaching
        for value in nodes[name].inner
        if value in derivative.values and any(other in used for other in nodes[name].defines if other != value)
    )
    derived = _find_derived(derivative, nodes, reaching, producers, inner, begun)
    on_path = {name for name in reaching if name in derived}
    second = [inner[name] for name in on_path if name in inner]
    members = frozenset(on_path).union(*(path.nodes for path in second))
    uses = {
        (use.value, name)
        for name in on_path
        for use in nodes[name].uses
        if use.differentiable and (use.value in derivative.values or producers.get(use.value) in on_path)
    }
    return GradientPath(nodes=members, uses=frozenset(uses | begun).union(*(path.uses for path in second)))


def find_reaching(
    loss: str, nodes: Mapping[str, Instruction], producers: Mapping[str, str], inner: Mapping[str, GradientPath]
) -> dict[str, None]:
    """Return the nodes from which a differentiable path leads to the loss, the loss first."""
    reaching: dict[str, None] = {}
    pending = [loss]
    while pending:
        name = pending.pop()
        if name in reaching or not nodes[name].differentiable:
            continue
        reaching[name] = None
        pending.extend(inner[name].nodes if name in inner else ())
        pending.extend(
            producers[use.value] for use in nodes[name].uses if use.differentiable and use.value in producers
        )
    return reaching


def _find_derived(
    derivative: Derivative,
    nodes: Mapping[str, Instruction],
    reaching: Mapping[str, None],
    producers: Mapping[str, str],
    inner: Mapping[str, GradientPath],
    begun: frozenset[tuple[str, str]],
) -> frozenset[str]:
    """Return those of the reaching nodes whose results depend on the targets."""
    derived = {name for _, name in begun}
    before = {
        name: [producers[use.value] for use in nodes[name].uses if producers.get(use.value) in reaching]
        for name in reaching
    }
    for name in sort(before):
        node = nodes[name]
        depends = any(read.cell in derivative.cells and not read.constant for read in node.reads) or any(
            use.differentiable and (use.value in derivative.values or producers.get(use.value) in derived)
            for use in node.uses
        )
        if depends or (name in inner and any(member in derived for member in inner[name].nodes)):
            derived.add(name)
    return frozenset(derived)
