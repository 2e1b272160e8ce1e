"""What was decided, and why: the reasons of deferrals, retained graphs, frozen weights, clones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate

from msgspec import Struct
from msgspec.structs import replace

from compiler.ir.digraph import NOTHING, Bits, collect, intersect
from compiler.ir.instructions import Forward, Gradient, Instruction
from compiler.ir.step_graph import Because, Decision, Edge, StepGraph
from compiler.passes.flags import find_through, is_recomputed
from compiler.passes.hazards import place_of
from compiler.passes.policies import Policy
from compiler.passes.schedule import Chain, find_chains, is_update

MOST = 4
"""The most reasons of one kind that a sentence lists."""
ALIKE = ("NO_GRAD", "FREEZE", "GATHER", "DETACH", "CREATE_GRAPH", "RECOMPUTE")
"""Decisions that are the same for every micro-batch; only the first one's are listed."""


class View(Struct, frozen=True, kw_only=True):
    """A scheduled graph with what the explanations look up again and again."""

    graph: StepGraph
    incoming: Mapping[str, tuple[Edge, ...]]
    chains: Mapping[str, Chain]
    through: Mapping[str, tuple[str, ...]]
    """By node, the gradients whose paths run through it."""
    shared: tuple[str, ...]
    """The nodes with lines that several paths run through, in listed order."""
    members: Mapping[str, Bits]
    """By gradient, those of its path."""
    latest: Mapping[str, tuple[str, ...]]
    """By node that combines verdicts, those that are known last, the last one first."""
    working: tuple[int, ...]
    """How many nodes before each place of the sequence do more than to write, change gradients or combine verdicts."""
    policy: Policy


def explain_decisions(graph: StepGraph, policy: Policy) -> StepGraph:
    """Return the graph with one decision for everything a reader may ask about, in the order of the sequence."""
    incoming: dict[str, list[Edge]] = {}
    for edge in graph.edges:
        incoming.setdefault(edge.after, []).append(edge)
    chains, through = find_chains(graph), find_through(graph, graph.paths)
    changing = {transform for chain in chains.values() for transform in chain.transforms}
    combining = {name for name, node in graph.nodes.items() if node.combined}
    aside = changing | combining
    works = (not graph.nodes[name].is_write and name not in aside for name in graph.sequence)
    shared = tuple(name for name, node in graph.nodes.items() if len(through.get(name, ())) > 1 and node.has_line)
    places: dict[str, list[int]] = {}
    for place, name in enumerate(shared):
        for gradient in through[name]:
            places.setdefault(gradient, []).append(place)
    view = View(
        graph=graph,
        incoming={name: tuple(edges) for name, edges in incoming.items()},
        chains=chains,
        through=through,
        shared=shared,
        members={gradient: collect(found) for gradient, found in places.items()},
        latest={
            name: tuple(sorted((edge.before for edge in incoming[name]), key=graph.position.__getitem__, reverse=True))
            for name in combining
        },
        working=(0, *accumulate(works)),
        policy=policy,
    )
    found = tuple(decision for name in graph.sequence for find in DECISIONS for decision in find(view, name))
    found = tuple(each for each in found if graph.nodes[each.node].micro_batch <= 1 or each.code not in ALIKE)
    return replace(graph, decisions=(*graph.decisions, *found))


def _find_deferral(view: View, name: str) -> Iterator[Decision]:
    """Yield DEFER for an update with something between its gradient and its write."""
    graph, node = view.graph, view.graph.nodes[name]
    if name not in view.chains:
        return
    chain = view.chains[name]
    if not chain.gradients:  # it applies what earlier steps gathered
        return
    position, own = graph.position, {*chain.gradients, *chain.transforms}
    last = max(position[gradient] for gradient in chain.gradients)
    late: list[Edge] = []
    edges = (edge for held in (name, *chain.transforms) for edge in view.incoming.get(held, ()))
    for edge in edges:
        # Where verdicts are combined, the update waits for the latest one that is not its own.
        latest = view.latest.get(edge.before, (edge.before,))
        awaited = next((each for each in latest if each not in own), "")
        if awaited and position[awaited] > last:
            late.append(replace(edge, before=awaited))
    late.sort(key=lambda edge: (-position[edge.before], edge.hazard.value))  # what it waits for longest comes first
    because = tuple(
        Because(
            edge=edge.hazard.value,
            op=graph.nodes[edge.before].op,
            cell="" if edge.cell is None else str(edge.cell),
            through=tuple(graph.nodes[each].op for each in edge.through),
            place=place_of(graph, edge),
            text=edge.why,
        )
        for edge in late
    )
    after = position[late[0].before] if late else last
    chosen = explain_delay(node, view.policy)
    if chosen is not None and view.working[position[name]] > view.working[after + 1]:
        because += (chosen,)
    if because:
        after_what = f" after {graph.nodes[late[0].before].label}" if late else ""
        text = f"{node.label} is deferred{after_what}: {'; '.join(dict.fromkeys(why.text for why in because))}"
        yield Decision(code="DEFER", subject=node.op, text=text, because=because, node=name)


def explain_delay(node: Instruction, policy: Policy) -> Because | None:
    """Return the choice that puts a write late, also where a hazard does; None where it stands as early as it may."""
    if is_update(node) and node.defer == "end":
        return Because(edge="defer", op=node.op, place=node.place, text="it says `defer: end`")
    if node.is_write and node.defer == "auto" and not policy.eager:
        why = f"the order `{policy.name}` puts every write as late as it may"
        return Because(edge="order", op=node.op, place=node.place, text=why)
    return None


def _find_gradient(view: View, name: str) -> Iterator[Decision]:
    """Yield RETAIN, RECOMPUTE and CREATE_GRAPH for a gradient.

    Its graph is retained for later gradients that run through it, its forwards may run again, and it may be
    differentiated itself.
    """
    graph = view.graph
    later = graph.flags.retained.get(name, ())
    reasons: list[Because] = []
    for other in (graph.nodes[each] for each in later):
        base, shared = intersect(view.members.get(name, NOTHING), view.members.get(other.id, NOTHING))
        more, through = shared.bit_count() - MOST, list[str]()
        while shared and len(through) < MOST:  # the lowest bits are the first nodes
            low = shared & -shared
            through.append(view.shared[base + low.bit_length() - 1])
            shared ^= low
        listed = ", ".join(through) + (f" and {more} more" if more > 0 else "")
        text = f"{other.label} runs through {listed} too"
        reasons.append(Because(edge="graph", op=other.op, through=tuple(through), place=other.place, text=text))
    if reasons:
        text = f"{graph.nodes[name].label} keeps its graph: " + "; ".join(reason.text for reason in reasons[:MOST])
        text += f"; and {len(reasons) - MOST} later gradients more" if len(reasons) > MOST else ""
        yield Decision(code="RETAIN", subject=graph.nodes[name].op, text=text, because=tuple(reasons), node=name)
    path = graph.paths[name].nodes if name in graph.paths else frozenset[str]()
    forwards = [node for node in map(graph.nodes.__getitem__, path) if is_recomputed(node)]
    forwards.sort(key=lambda node: graph.position[node.id])
    if forwards:
        names = ", ".join(dict.fromkeys(node.op for node in forwards))
        because = tuple(Because(edge="graph", op=node.op, place=node.place) for node in forwards)
        text = f"{graph.nodes[name].label} recomputes {names}, in whole or in part: they read their models again"
        yield Decision(code="RECOMPUTE", subject=graph.nodes[name].op, text=text, because=because, node=name)
    outer = graph.flags.created.get(name)
    if outer is not None:
        text = f"{graph.nodes[name].label} records its own graph: {graph.nodes[outer].label} differentiates it"
        because = (Because(edge="data", op=graph.nodes[outer].op, place=graph.nodes[outer].place),)
        yield Decision(code="CREATE_GRAPH", subject=graph.nodes[name].op, text=text, because=because, node=name)


def _find_use(view: View, name: str) -> Iterator[Decision]:
    """Yield NO_GRAD, FREEZE, GATHER and SNAPSHOT for a forward, and DETACH for a use that passes no gradient back."""
    graph, node = view.graph, view.graph.nodes[name]
    is_forward = node.called is not None
    if is_forward and name not in graph.flags.recorded:
        text = f"{node.label} runs without a graph: no gradient passes through it"
        yield Decision(code="NO_GRAD", subject=node.op, text=text, node=name)
    elif is_forward and name in graph.flags.frozen:
        through = [graph.nodes[each].label for each in view.through[name]]
        gradients = ", ".join(through[:MOST]) + (f" and {len(through) - MOST} more" if len(through) > MOST else "")
        why = f"{gradients} run{'' if through[1:] else 's'} through it, but no gradient is taken of them"
        text = f"{node.label} runs with the weights of {node.called} frozen: {why}"
        yield Decision(code="FREEZE", subject=node.op, text=text, node=name)
    if is_forward and name in graph.flags.kept:
        outer = graph.flags.created[next(each for each in graph.flags.created if name in graph.paths[each].nodes)]
        text = f"the weights of {node.called} stay gathered after {node.label}: {graph.nodes[outer].label} runs "
        text += "through its gradient, and reads them where nothing would gather them again"
        yield Decision(code="GATHER", subject=node.op, text=text, node=name)
    if is_forward and name in graph.snapshots:
        whose = f"{node.called}'s buffers"
        text = f"{node.label} runs on clones of {whose}: a later gradient needs them after they are written"
        yield Decision(code="SNAPSHOT", subject=node.op, text=text, node=name)
    elif isinstance(node, Forward) and node.snapshot == "all":
        text = f"{node.label} runs on clones of {node.called}: it says `snapshot: true`"
        yield Decision(code="SNAPSHOT", subject=node.op, text=text, node=name)
    for use in node.uses:
        value = use.value
        if (value, name) in graph.flags.detached:
            is_target = isinstance(node, Gradient) and value in node.target_values
            why = "it is itself a target of the gradient" if is_target else "no gradient flows back"
            text = f"{node.label} takes {value} detached: {why}" + ("" if is_target else " through it here")
            yield Decision(code="DETACH", subject=node.op, text=text, node=name)


DECISIONS = (_find_deferral, _find_gradient, _find_use)
