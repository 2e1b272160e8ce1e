"""Infer what each node needs of the autograd graph: record, freeze, detach, retain_graph, create_graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from compiler.ir.cell import Cell
from compiler.ir.digraph import number
from compiler.ir.instructions import Instruction
from compiler.ir.step_graph import GraphFlags, StepGraph


def infer_flags(graph: StepGraph, *, is_sharded: bool) -> StepGraph:
    """Return the graph with its flags; needs paths and the sequence."""
    recorded = frozenset[str]().union(*(path.nodes for path in graph.paths.values()))
    created = find_created(graph)
    return replace(
        graph,
        flags=GraphFlags(
            recorded=recorded,
            frozen=find_frozen_forwards(graph, recorded),
            detached=find_detached(graph, recorded),
            retained=find_retained(graph),
            created=created,
            kept=find_gathered(graph, created) if is_sharded else frozenset(),
        ),
    )


def find_frozen_forwards(graph: StepGraph, recorded: frozenset[str]) -> frozenset[str]:
    """Return the recorded forwards of whose own weights no gradient on their paths is taken.

    One that is recomputed must run both times in the same way, and nothing freezes its weights the second time.
    """
    wanted: set[str] = set()
    for gradient, path in graph.paths.items():
        derivative = graph.nodes[gradient].derivative
        cells = frozenset[Cell]() if derivative is None else derivative.cells
        for name in path.nodes:
            if any(read.cell in cells and not read.constant for read in graph.nodes[name].reads):
                wanted.add(name)
    others = map(graph.nodes.__getitem__, recorded - wanted)
    return frozenset(
        node.id for node in others if node.called is not None and reads_weights(node) and not is_recomputed(node)
    )


def reads_weights(node: Instruction) -> bool:
    """Return whether a node reads parameters of models."""
    return any(read.cell.kind in ("params", "tied") for read in node.reads)


def is_recomputed(node: Instruction) -> bool:
    """Return whether a gradient through a node recomputes parts of it."""
    return any(read.again for read in node.reads)


def find_detached(graph: StepGraph, recorded: frozenset[str]) -> frozenset[tuple[str, str]]:
    """Return the uses by recorded nodes of values with a graph through which no gradient is wanted."""
    carried = frozenset[tuple[str, str]]().union(*(path.uses for path in graph.paths.values()))
    attached = {
        value for value, name in graph.producers.items() if name in recorded and graph.nodes[name].differentiable
    }
    for name in graph.paths:
        derivative = graph.nodes[name].derivative
        attached.update(() if derivative is None else derivative.values)
    uses = ((use.value, name) for name in graph.nodes if name in recorded for use in graph.nodes[name].uses)
    return frozenset(use for use in uses if use[0] in attached and use not in carried)


def find_retained(graph: StepGraph) -> Mapping[str, tuple[str, ...]]:
    """Return, for every gradient, the later gradients whose path shares a node with its own."""
    ordered = [name for name in graph.sequence if name in graph.paths]
    through = find_through(graph, ordered)
    same = dict[tuple[str, ...], tuple[str, ...]]()  # many nodes are on the same paths
    same.update((names, names) for names in through.values() if len(names) > 1)
    place = number(ordered)
    retained: dict[str, tuple[str, ...]] = {}
    for name in ordered:
        groups = (same[through[each]] for each in graph.paths[name].nodes if len(through[each]) > 1)
        others = {other for group in {id(group): group for group in groups}.values() for other in group}
        later = sorted((other for other in others if place[other] > place[name]), key=place.__getitem__)
        retained |= {name: tuple(later)} if later else {}
    return retained


def find_through(graph: StepGraph, gradients: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Return, by node, those of some gradients whose paths run through it, in their order."""
    through: dict[str, list[str]] = {}
    for gradient in gradients:
        for name in graph.paths[gradient].nodes:
            through.setdefault(name, []).append(gradient)
    return {name: tuple(found) for name, found in through.items()}


def find_created(graph: StepGraph) -> Mapping[str, str]:
    """Return, for every gradient on another's path, that other gradient (the first in listed order)."""
    created: dict[str, str] = {}
    for gradient, path in graph.paths.items():
        for name in path.nodes:
            if name in graph.paths:
                created.setdefault(name, gradient)
    return created


def find_gathered(graph: StepGraph, created: Mapping[str, str]) -> frozenset[str]:
    """Return the forwards on the path of a gradient that is itself differentiated.

    FSDP2 gathers the weights of a layer again where a gradient enters it by its result. A second derivative reads them
    elsewhere.
    """
    nodes = (graph.nodes[name] for gradient in created for name in graph.paths[gradient].nodes)
    return frozenset(node.id for node in nodes if node.called is not None)
