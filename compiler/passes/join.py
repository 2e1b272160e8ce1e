"""Join calls of a model into one call on the rows of all: fewer pieces of work, each of more rows.

Calls are joined where the one call means the same and costs no more. They read the same versions of the weights, and
neither their order nor a gradient distinguishes them: none comes before another, and every gradient runs through all of
them or through none. The model treats every row alone, draws nothing and writes nothing. Numbers stay the same except
for the order of sums.

Two calls of a net whose results are small take up to a quarter less time as one. One layer alone gains less than it
costs to put the rows together, and results that no longer fit the caches cost more together: ADR 0048 has the figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import TypeAlias

from msgspec.structs import replace

from compiler.facts.models import ModelFacts
from compiler.ir.digraph import close, find_cycles
from compiler.ir.instructions import Forward
from compiler.ir.step_graph import Because, Decision, Edge, GradientPath, StepGraph
from compiler.ir.value import Ref
from compiler.passes.document import Context
from compiler.passes.flags import find_through
from compiler.types.dimension import UNKNOWN, TensorType
from compiler.types.layers import LayerCall, trace_layers

MOST_NUMBERS = 32_768
"""The most numbers that a layer may give for each row."""
LEAST_LAYERS = 2
"""The fewest layers with weights that a model must have."""

Joined: TypeAlias = tuple[str, ...]
"""Calls that become one, in the order in which they are listed."""


def join_calls(graph: StepGraph, context: Context) -> StepGraph:
    """Return the graph with one forward for calls that can be joined, in the place and under the name of the first.

    Its hazards must be known.
    """
    found = _find_joined(graph, context)
    if not found:
        return graph
    first = {name: joined[0] for joined in found for name in joined}
    made: dict[str, Forward] = {}
    decisions = [*graph.decisions]
    for joined in found:
        calls = [node for name in joined if isinstance(node := graph.nodes[name], Forward)]
        names = enumerate_names([each.id for each in calls])
        made[joined[0]] = call = replace(
            calls[0],
            label=f"joint forward of {names}",
            uses=tuple(use for each in calls for use in each.uses),
            arguments=tuple(argument for each in calls for argument in each.arguments),
            outputs=tuple(value for each in calls for value in each.outputs),
            joined=tuple(each.op for each in calls),
        )
        text = (
            f"{names} are one call of {call.model}, on the rows of {'both' if len(calls) == 2 else 'all'}: it "
            "treats each row alone, and the same gradients run through them"
        )
        because = tuple(Because(edge="graph", op=each.op, place=each.place) for each in calls[1:])
        decisions.append(Decision(code="MERGE", subject=call.op, text=text, because=because, node=call.id))

    def rename(names: Iterable[str]) -> tuple[str, ...]:
        """Return nodes with joined ones under the name of the first, each once."""
        return tuple(dict.fromkeys(first.get(name, name) for name in names))

    def move(edges: Iterable[Edge]) -> tuple[Edge, ...]:
        """Return edges between the nodes that are left."""
        moved = (
            replace(
                edge,
                before=first.get(edge.before, edge.before),
                after=first.get(edge.after, edge.after),
                through=rename(edge.through),
            )
            for edge in edges
        )
        return tuple(dict.fromkeys(moved))

    nodes = {name: made.get(name, node) for name, node in graph.nodes.items() if first.get(name, name) == name}
    paths = {
        gradient: GradientPath(
            nodes=frozenset(rename(path.nodes)),
            uses=frozenset((value, first.get(name, name)) for value, name in path.uses),
        )
        for gradient, path in graph.paths.items()
    }
    return replace(
        graph,
        nodes=nodes,
        paths=paths,
        ordering=move(graph.ordering),
        hazards=move(graph.hazards),
        decisions=tuple(decisions),
    )


def _find_joined(graph: StepGraph, context: Context) -> tuple[Joined, ...]:
    """Return the calls that become one, none of which waits for another, not even through other joined calls."""
    groups = _find_alike(graph, context)
    if not groups:
        return ()
    before: dict[str, list[str]] = {name: [] for name in graph.nodes}
    for edge in graph.edges:
        before[edge.after].append(edge.before)
    closure = close(before, {name for group in groups for name in group})
    found: list[Joined] = []
    for group in groups:
        among = closure.collect(group)
        # of two calls one of which comes before the other, that one has fewer before it
        levels: dict[int, list[str]] = {}
        for name in group:
            levels.setdefault(closure.meet(name, among)[1].bit_count(), []).append(name)
        found.extend(tuple(level) for level in levels.values() if len(level) > 1)
    while True:
        first = {name: joined[0] for joined in found for name in joined}
        pairs = ((first.get(edge.before, edge.before), first.get(edge.after, edge.after)) for edge in graph.edges)
        cycles = find_cycles((one, other) for one, other in pairs if one != other)
        if not cycles:
            return tuple(found)
        found.remove(next(joined for joined in reversed(found) if joined[0] in cycles[0]))


def _find_alike(graph: StepGraph, context: Context) -> tuple[Joined, ...]:
    """Return the calls that differ in their rows alone, where there are several."""
    through, entered = find_through(graph, graph.paths), dict[str, list[str]]()
    for gradient, path in graph.paths.items():
        for _, name in path.uses:
            entered.setdefault(name, []).append(gradient)
    models: dict[tuple[str, TensorType], bool] = {}
    groups: dict[tuple[object, ...], list[str]] = {}
    for name, node in graph.nodes.items():
        if not isinstance(node, Forward) or name not in through:
            continue
        # A plain call maps one value to another, by weights that are parameters, and does nothing else.
        is_pure = not (node.draws or node.writes or node.token or node.stop or node.checkpoint or node.weights)
        is_bare = not (node.taps or node.named or node.snapshot != "none" or node.id in graph.snapshots)
        is_unary = len(node.outputs) == len(node.arguments) == len(node.uses) == 1
        if not (is_pure and is_bare and is_unary):
            continue
        (argument,) = node.arguments
        if not isinstance(argument.operand, Ref):
            continue
        given = context.types.get(graph.wholes.get(argument.operand.name, argument.operand.name), UNKNOWN)
        key = node.model, given
        if key not in models:
            models[key] = _gains(context, node.model, given)
        if models[key]:
            reads = tuple((read.at, read.constant) for read in node.reads)
            flow = tuple(through[name]), tuple(entered.get(name, ())), argument.operand.detach
            alike = node.model, node.method, node.train, node.micro_batch, node.is_replica, given, reads, flow
            groups.setdefault(alike, []).append(name)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _gains(context: Context, model: str, given: TensorType) -> bool:
    """Return whether calls of a model are faster when joined, and whether it certainly treats every row alone."""
    facts: ModelFacts = context.models[model]
    layers = context.spec.models[facts.root].layers
    if layers is None or facts.batch_coupled or facts.recomputes or given.shape is None or len(given.shape) < 2:
        return False
    calls = [*walk_layers(trace_layers(layers, given.shape, given.dtype))]
    weighted = sum(bool(each.parameters) and not each.layers for each in calls)
    free = any(isinstance(size, str) for each in calls for size in each.output[1:])
    numbers = (prod(size for size in each.output[1:] if isinstance(size, int)) for each in calls)
    return weighted >= LEAST_LAYERS and not free and max(numbers) <= MOST_NUMBERS


def walk_layers(calls: Sequence[LayerCall]) -> Iterable[LayerCall]:
    """Yield layers, each before those that are inside it."""
    for call in calls:
        yield call
        yield from walk_layers(call.layers)


def enumerate_names(names: Sequence[str]) -> str:
    """Return names in words: ``on_real and on_fake``."""
    return f"{', '.join(names[:-1])} and {names[-1]}"
