"""Join gradients into one backward pass, where it gives each of them but for a known factor.

A critic minimizes a loss, and features maximize it: their losses are `domain` and `label - 0.1 * domain`. For the
weights of the critic the gradient of the second is -0.1 times that of the first, so one gradient of the second loss for
all of these weights gives both. The critic's part of it is multiplied by -10.

Both losses are written as sums of terms with constant factors. What counts are the terms that depend on the weights in
question: if each has the same multiple of its factor in the other loss, so has the gradient. This is read off the
nodes that are differentiated, after the step was split into micro-batches, so it holds for their shares and counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import isclose, prod

from msgspec import Struct
from msgspec.structs import replace

from compiler.ir.cell import Cell
from compiler.ir.digraph import close, find_cycles, intersect, unite
from compiler.ir.instructions import Adapt, Evaluate, Forward, Gradient, Instruction, Transform
from compiler.ir.step_graph import Because, Decision, Edge, GradientPath, Hazard, StepGraph, find_producers
from compiler.ir.value import FunctionRef, Ref, Use
from compiler.passes.document import Context
from compiler.passes.join import enumerate_names, walk_layers
from compiler.passes.loss_terms import Term, find_terms
from compiler.passes.paths import LossPaths
from compiler.passes.schedule import find_chains
from compiler.types.dimension import UNKNOWN
from compiler.types.layers import trace_layers

MOST = 2.0**10
"""The greatest factor, and one over the least: beyond it the numbers of a type of 16 bits would overflow."""
MOST_NUMBERS = 2**17
"""The most parameters whose gradients are multiplied, unless a row uses each of them so often:"""
LEAST_USES = 8
HAZARDS = frozenset({Hazard.BACKWARD_WAR, Hazard.BUFFER_WAR})
"""Edges from a gradient that are about the backward pass, not about the set that it gives."""


class Joint(Struct, frozen=True, kw_only=True):
    """Gradients that become one: that whose loss is differentiated, and the others by the factors of their parts."""

    carrier: Gradient
    carried: Mapping[str, float]

    @property
    def names(self) -> tuple[str, ...]:
        """Return all of them, the one whose loss is differentiated first."""
        return (self.carrier.id, *self.carried)

    @property
    def name(self) -> str:
        """Return the name of the gradient that they become."""
        return f"{self.carrier.id}.joint"


def join_gradients(graph: StepGraph, context: Context) -> StepGraph:
    """Return the graph with one gradient for those that one backward pass gives; its hazards must be known."""
    for joint in _find_joints(graph, context):
        graph = _rewrite(graph, joint)
    return graph


# ---------------------------------------------------------------- which gradients


def _find_joints(graph: StepGraph, context: Context) -> tuple[Joint, ...]:
    """Return the gradients that become one, none of which waits for another, not even through other joint ones."""
    finder = _Finder.of(graph, context)
    related = finder.relate()
    if not related:
        return ()
    before: dict[str, list[str]] = {name: [] for name in graph.nodes}
    for edge in graph.edges:
        before[edge.after].append(edge.before)
    closure = close(before, finder.plain)

    found: list[Joint] = []
    taken = set[str]()
    for carrier, factors in sorted(related.items(), key=lambda each: -len(each[1])):  # ties as they are listed
        carried: dict[str, float] = {}
        members, past, models = closure.collect((carrier,)), closure.pasts[carrier], {*finder.plain[carrier].models}
        for name, factor in factors.items():
            own = closure.collect((name,))
            is_ordered = intersect(own, past)[1] or closure.meet(name, members)[1]
            if name not in taken and not is_ordered and models.isdisjoint(finder.plain[name].models):
                carried[name] = factor
                members, past = unite(members, own), unite(past, closure.pasts[name])
                models.update(finder.plain[name].models)
        if carried and carrier not in taken:
            taken.update((carrier, *carried))
            found.append(Joint(carrier=finder.plain[carrier], carried=carried))
    while True:
        first = {name: joint.name for joint in found for name in joint.names}
        pairs = ((first.get(edge.before, edge.before), first.get(edge.after, edge.after)) for edge in graph.edges)
        cycles = find_cycles((one, other) for one, other in pairs if one != other)
        if not cycles:
            return tuple(found)
        found.remove(next(joint for joint in reversed(found) if joint.name in cycles[0]))


class _Finder(Struct, frozen=True, kw_only=True):
    """Finds which gradients another gives but for a factor."""

    graph: StepGraph
    context: Context
    producers: Mapping[str, str]
    plain: Mapping[str, Gradient]
    """The gradients that may be joined."""
    terms: Mapping[str, Mapping[Term, float]]
    """By gradient, the terms of its loss with their factors."""
    users: Mapping[str, Sequence[Instruction]]
    """By value, what a gradient runs back from to it."""
    readers: Mapping[Cell, Sequence[Instruction]]
    """By cell, what a gradient for it runs back to."""

    @classmethod
    def of(cls, graph: StepGraph, context: Context) -> _Finder:
        """Return the finder of a graph."""
        producers = find_producers(graph.nodes.values())
        plain = {node.id: node for node in _find_plain(graph)}
        terms = {name: find_terms(node.loss, graph.nodes, producers) for name, node in plain.items()}
        users: dict[str, list[Instruction]] = {}
        readers: dict[Cell, list[Instruction]] = {}
        for node in (each for each in graph.nodes.values() if plain and each.differentiable):
            for value in (use.value for use in node.uses if use.differentiable):
                users.setdefault(value, []).append(node)
            for cell in (read.cell for read in node.reads if not read.constant):
                readers.setdefault(cell, []).append(node)
        return cls(
            graph=graph,
            context=context,
            producers=producers,
            plain=plain,
            terms=terms,
            users=users,
            readers=readers,
        )

    def relate(self) -> Mapping[str, Mapping[str, float]]:
        """Return, by gradient, the others whose sets it gives but for these factors."""
        holders: dict[Term, list[str]] = {}
        for name, terms in self.terms.items():
            for term in terms:
                holders.setdefault(term, []).append(name)
        related: dict[str, dict[str, float]] = {}
        for name, terms in self.terms.items():
            carriers = {each: None for term in terms for each in holders[term] if each != name}
            reached = self._find_reached(self.plain[name].cells) if carriers else frozenset[str]()
            for carrier in carriers:
                factor = self._find_factor(carrier, name, reached)
                if factor is not None:
                    related.setdefault(carrier, {})[name] = factor
        return {name: related[name] for name in self.plain if name in related}

    def _find_reached(self, cells: frozenset[Cell]) -> frozenset[str]:
        """Return the nodes whose results depend on some parameters, for a gradient."""
        reached = {node.id: node for cell in cells for node in self.readers.get(cell, ())}
        pending = [*reached.values()]
        while pending:
            for value in pending.pop().defines:
                fresh = [each for each in self.users.get(value, ()) if each.id not in reached]
                reached.update((each.id, each) for each in fresh)
                pending.extend(fresh)
        return frozenset(reached)

    def _find_factor(self, carrier: str, name: str, reached: Collection[str]) -> float | None:
        """Return the factor that makes another gradient of what a gradient gives for its weights; None: there is none.

        ``reached`` are the nodes that depend on these weights.
        """
        one, other = self.plain[carrier], self.plain[name]
        # Both are of one place, and run back through one call, which takes longer to find out.
        places = [(each.micro_batch, each.within, each.scaled) for each in (one, other)]
        if places[0] != places[1]:
            return None
        factor: float | None = None
        for term in dict.fromkeys((*self.terms[carrier], *self.terms[name])):
            if self.producers.get(term.value) not in reached:
                continue
            given, wanted = self.terms[carrier].get(term, 0.0), self.terms[name].get(term, 0.0)
            if not given or not wanted or (factor is not None and not isclose(wanted / given, factor, rel_tol=1e-15)):
                return None
            factor = wanted / given if factor is None else factor
        if factor is None or not 1 / MOST <= abs(factor) <= MOST:
            return None
        fewer, more = sorted((self.graph.paths[carrier].nodes, self.graph.paths[name].nodes), key=len)
        if not any(each in more and isinstance(self.graph.nodes[each], Forward) for each in fewer):
            return None
        if abs(factor) != 1:  # its numbers may leave the range of a narrow type, for which it is scaled
            calls = (self.graph.nodes[each] for each in self.graph.paths[name].nodes)
            if other.scaled or any(isinstance(each, Forward) and each.compute != "float32" for each in calls):
                return None
        return factor if factor == 1 or self._is_worth(name) else None

    def _is_worth(self, name: str) -> bool:
        """Return whether to multiply a gradient set takes less time than to run back once more through its models.

        It is not where their layers, or what these are given, are not known.
        """
        size, products = 0, 0
        for model in self.plain[name].models:
            layers = self.context.spec.models[self.context.models[model].root].layers
            nodes = (self.graph.nodes[each] for each in self.graph.paths[name].nodes)
            call = next((each for each in nodes if isinstance(each, Forward) and each.model == model), None)
            if layers is None or call is None or len(call.arguments) != 1:
                return False
            operand = call.arguments[0].operand
            assert isinstance(operand, Ref)
            given = self.context.types.get(self.graph.wholes.get(operand.name, operand.name), UNKNOWN)
            if given.shape is None:
                return False
            for layer in walk_layers(trace_layers(layers, given.shape, given.dtype)):
                own = () if layer.layers else layer.parameters
                positions = prod(each for each in layer.output[1:] if isinstance(each, int))
                size += sum(prod(each.shape) for each in own)
                products += sum(positions * prod(each.shape[1:]) for each in own)
        return size <= MOST_NUMBERS or products >= LEAST_USES * size


def _find_plain(graph: StepGraph) -> Iterator[Gradient]:
    """Yield the gradients of a loss for whole models, all of which it of_loss, that nothing differentiates again."""
    if len(graph.paths) < 2:
        return
    hurried = {
        name
        for update, chain in find_chains(graph).items()
        if graph.nodes[update].defer == "never"
        for name in chain.gradients
    }
    inner = {each for path in graph.paths.values() for each in path.nodes if each in graph.paths}
    for name, path in graph.paths.items():
        node = graph.nodes[name]
        if not isinstance(node, Gradient) or name in inner or name in hurried:
            continue
        # A plain one is of one loss, for all parameters of models that share none with others.
        is_whole = node.output is not None and not node.values and node.weights is None and not node.grad_outputs
        is_dense = node.unconnected == "error" and not (node.frozen or node.fully_frozen or node.rows)
        is_own = len(node.uses) == 1 and not node.uses[0].optional and not node.is_replica
        if not (is_whole and is_dense and is_own and all(cell.kind == "params" for cell in node.cells)):
            continue
        if not any(isinstance(graph.nodes[each], Gradient | Adapt) for each in path.nodes):
            yield node


# ---------------------------------------------------------------- the graph with them


def _rewrite(graph: StepGraph, joint: Joint) -> StepGraph:
    """Return the graph with one gradient, and each set as a part of what it gives, under the names they had."""
    gradients = [node for name in joint.names if isinstance(node := graph.nodes[name], Gradient)]
    ops = tuple(each.op for each in gradients)
    made = replace(  # the gradient of the carrier's loss for the models of all
        joint.carrier,
        id=joint.name,
        label=f"joint gradient of {enumerate_names(ops)}",
        reads=tuple(dict.fromkeys(read for each in gradients for read in each.reads)),
        models=tuple(model for each in gradients for model in each.models),
        cells=frozenset[Cell]().union(*(each.cells for each in gradients)),
        output=f"{joint.carrier.output}.joint",
        joined=ops,
    )
    parts = {each.id: _take_part(each, made, joint.carried.get(each.id, 1.0)) for each in gradients}
    whys = {name: f"{part.label} uses the value {made.output}" for name, part in parts.items()}
    given = (Edge(before=made.id, after=name, hazard=Hazard.DATA, why=why) for name, why in whys.items())
    nodes: dict[str, Instruction] = {}
    for name, node in graph.nodes.items():
        if name in parts and made.id not in nodes:
            nodes[made.id] = made
        nodes[name] = parts.get(name, node)
    dropped = _find_unread(nodes, graph.outputs, [each.loss for each in gradients])
    nodes = {name: node for name, node in nodes.items() if name not in dropped}
    kept = {name: path for name, path in graph.paths.items() if name not in parts}
    path = LossPaths.of(made.loss, nodes, find_producers(nodes.values()), kept).find_path(made.derivative)
    said: list[str] = []
    for node in (each for each in gradients if each.loss != made.loss):
        times = joint.carried[node.id]
        what = f"that of {node.loss}" if times == 1 else f"{1 / times:g} times that of {node.loss}"
        said.append(f"for {', '.join(node.models)} it is {what}")
    text = f"{enumerate_names(ops)} take one gradient, of {made.loss}{': ' * bool(said)}{', '.join(said)}"
    because = tuple(Because(edge="graph", op=each.op, place=each.place) for each in gradients[1:])
    decision = Decision(code="MERGE", subject=made.op, text=text, because=because, node=made.id)
    return replace(
        graph,
        nodes=nodes,
        causality=graph.causality.stand_in(made.id, joint.names),
        paths={**{name: _leave_out(each, dropped) for name, each in kept.items()}, made.id: path},
        ordering=(*_move(graph.ordering, joint, dropped), *given),
        hazards=_move(graph.hazards, joint, dropped),
        decisions=(*graph.decisions, decision),
    )


def _take_part(node: Gradient, made: Gradient, factor: float) -> Transform:
    """Return what takes the set of one gradient out of that of the joint one."""
    assert node.output is not None
    assert made.output is not None
    return Transform(
        id=node.id,
        op=node.op,
        label=f"transform {node.output}",
        place=node.place,
        micro_batch=node.micro_batch,
        within=node.within,
        gate=node.gate,
        gated_by=node.gated_by,
        differentiable=node.differentiable,
        uses=(Use(value=made.output),),
        function=FunctionRef(name="part", builtin=True),
        inputs=(made.output,),
        output=node.output,
        models=node.models,
        covers=made.models,
        options={} if factor == 1 else {"factor": factor},
    )


def _find_unread(nodes: Mapping[str, Instruction], outputs: Collection[str], losses: Sequence[str]) -> frozenset[str]:
    """Return the nodes that nothing reads now that some losses are not differentiated any more."""
    producers = find_producers(nodes.values())
    readers: dict[str, int] = {}
    for node in nodes.values():
        for use in node.uses:
            readers[use.value] = readers.get(use.value, 0) + 1
    dropped = set[str]()
    pending = [*losses]
    while pending:
        name = producers.get(pending.pop(), "")
        node = nodes.get(name)
        if not isinstance(node, Evaluate) or name in dropped or node.token or node.family == "metric":
            continue
        if not any(readers.get(value) or value in outputs for value in node.defines):
            dropped.add(name)
            for use in node.uses:
                readers[use.value] -= 1
                pending.append(use.value)
    return frozenset(dropped)


def _leave_out(path: GradientPath, dropped: Collection[str]) -> GradientPath:
    """Return a path without nodes that are gone."""
    if path.nodes.isdisjoint(dropped):
        return path
    uses = frozenset(use for use in path.uses if use[1] not in dropped)
    return GradientPath(nodes=path.nodes - frozenset(dropped), uses=uses)


def _move(edges: Sequence[Edge], joint: Joint, dropped: Collection[str]) -> tuple[Edge, ...]:
    """Return edges between the nodes that are left: what came before a gradient comes before the joint one.

    The losses of the others are not differentiated any more.
    """
    moved: dict[Edge, None] = {}
    names = {*joint.names}
    for edge in edges:
        is_loss = edge.after in joint.carried and edge.hazard is Hazard.DATA
        if is_loss or edge.before in dropped or edge.after in dropped:
            continue
        is_backward = edge.before in names and edge.hazard in HAZARDS
        before = joint.name if is_backward else edge.before
        after = joint.name if edge.after in names else edge.after
        moved[replace(edge, before=before, after=after)] = None
    return tuple(moved)
