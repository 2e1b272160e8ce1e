"""Put the instructions in a sequence: values on demand, each write at its earliest legal place.

The only freedom is the order of the updates' gradients, which an order policy chooses (compiler/passes/policies.py).
Messages start as soon as what they send is there, and are waited for only where nothing else is left to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from compiler.ir.digraph import Causality, close
from compiler.ir.instructions import Instruction, Start
from compiler.ir.step_graph import StepGraph
from compiler.passes.order import find_producers
from compiler.passes.policies import Policy, UpdateOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The nodes whose values an update applies, each kind in the order in which it is met from the write back."""

    gradients: tuple[str, ...]
    transforms: tuple[str, ...] = ()
    """The nodes between the gradients and the write: clips, projections, sums of gradient sets."""


def find_chains(graph: StepGraph) -> Mapping[str, Chain]:
    """Return the chain of every update, in listed order: the walk back from its write ends at what differentiates."""
    producers = find_producers(graph.nodes.values())
    chains: dict[str, Chain] = {}
    for update in (node for node in graph.nodes.values() if is_update(node)):
        gradients: dict[str, None] = {}
        transforms: dict[str, None] = {}
        pending = [producers[use.value] for use in update.uses]
        while pending:
            name = pending.pop(0)
            node = graph.nodes[name]
            if node.derivative is not None:
                gradients[name] = None
            elif name not in transforms:
                transforms[name] = None
                pending.extend(producers[use.value] for use in node.uses if use.value in producers)
        chains[update.id] = Chain(gradients=tuple(gradients), transforms=tuple(transforms))
    return chains


def is_update(node: Instruction) -> bool:
    """Return whether a node applies gradients: it steps an optimizer."""
    return any(write.cell.kind == "optimizer" for write in node.writes)


def schedule(graph: StepGraph, policy: Policy) -> StepGraph:
    """Return the graph with its sequence under an order policy; the graph must have no cycle."""
    order = describe_updates(graph)
    chosen = policy.choose(order, graph)
    sequence = _Scheduler(graph, eager=policy.eager).run(order, chosen)
    return replace(graph, sequence=sequence)


def describe_updates(graph: StepGraph) -> UpdateOrder:
    """Return what an order policy needs to know: each update's gradients, what they need, what its write waits for."""
    closure = close(_predecessors(graph))
    chains = find_chains(graph)
    anchors = {name: chain.gradients for name, chain in chains.items()}
    return UpdateOrder(
        anchors=anchors,
        before={name: _find_needed(anchors[name], name, anchors, closure) for name in chains},
        waits={name: _find_needed((name,), name, anchors, closure) for name in chains},
        always=frozenset(name for name, chain in chains.items() if _is_always_deferred(name, chain, graph, closure)),
        never=frozenset(name for name in chains if graph.nodes[name].defer == "never"),
    )


def _is_always_deferred(update: str, chain: Chain, graph: StepGraph, closure: Causality) -> bool:
    """Return whether, whichever of an update's gradients is the last, something stands between it and the write."""
    own = {*chain.gradients, *chain.transforms}
    others = [name for name in closure.past(update, graph.nodes) if name not in own]
    lasts = [name for name in chain.gradients if not any(closure.precedes(name, other) for other in chain.gradients)]
    return bool(lasts) and all(any(closure.precedes(last, name) for name in others) for last in lasts)


def _find_needed(
    nodes: tuple[str, ...], update: str, anchors: Mapping[str, tuple[str, ...]], closure: Causality
) -> frozenset[str]:
    """Return the other updates one of whose anchors, not its own as well, must come before one of the nodes."""
    own = anchors[update]
    return frozenset(
        other
        for other, theirs in anchors.items()
        if any(closure.precedes(anchor, node) for anchor in theirs if anchor not in own for node in nodes)
    )


def _predecessors(graph: StepGraph) -> dict[str, list[str]]:
    """Return the direct predecessors of every node, in listed order."""
    position = {name: index for index, name in enumerate(graph.nodes)}
    found: dict[str, set[str]] = {name: set() for name in graph.nodes}
    for edge in graph.edges:
        found[edge.after].add(edge.before)
    return {name: sorted(before, key=position.__getitem__) for name, before in found.items()}


def _has_sets(node: Instruction) -> bool:
    """Return whether a node starts a message with gradients."""
    return isinstance(node, Start) and node.has_sets


class _Scheduler:
    """Appends nodes on demand: a node's predecessors first, and every write as soon as nothing holds it back."""

    def __init__(self, graph: StepGraph, *, eager: bool) -> None:
        self._graph = graph
        self._eager = eager
        self._before = _predecessors(graph)
        self._closure = close(self._before)
        self._done: dict[str, None] = {}
        self._writes = [name for name, node in graph.nodes.items() if node.is_write]
        chains = find_chains(graph)
        self._transforms = {name for chain in chains.values() for name in chain.transforms}
        self._never = {update for update in chains if graph.nodes[update].defer == "never"}
        self._hurried = {name for update in self._never for name in chains[update].transforms}
        """What an update needs at once that says `defer: never`: nothing else runs while its messages travel."""
        waiting = (name for name, node in graph.nodes.items() if node.message and name not in self._hurried)
        self._waits = dict.fromkeys(waiting)
        """The nodes that wait for a message and are not done."""
        self._starts = tuple(name for name, node in graph.nodes.items() if isinstance(node, Start))
        self._waiting = {name: len(before) for name, before in self._before.items()}
        self._after: dict[str, list[str]] = {name: [] for name in graph.nodes}
        for name, before in self._before.items():
            for other in before:
                self._after[other].append(name)

    def run(self, order: UpdateOrder, chosen: Iterable[str]) -> tuple[str, ...]:
        """Return the sequence for updates in the chosen order, then everything else in listed order."""
        remaining, nodes = dict(order.anchors), self._graph.nodes
        for name in (name for name in self._writes if not self._before[name]):
            if self._is_immediate(nodes[name]):
                self._append(name)
        for together in self._group(tuple(chosen), order):
            # Micro-batch by micro-batch: the graph of one is gone before the next.
            pairs = ((anchor, update) for update in together for anchor in remaining[update])
            anchors = sorted(pairs, key=lambda pair: nodes[pair[0]].micro_batch)
            last = {update: nodes[anchor].micro_batch for anchor, update in anchors}
            for anchor, update in anchors:
                if update in remaining and nodes[anchor].micro_batch == last[update]:
                    self._prepare(update, remaining)
                    remaining.pop(update)
                self._demand(anchor)
        for name in (*(name for name in self._before if name not in self._writes), *self._writes):
            if not self._needs_wait(name):
                self._demand(name)
        position = {name: index for index, name in enumerate(self._done)}
        first = sorted(self._waits, key=lambda name: max(position.get(each, 0) for each in self._before[name]))
        for name in (*first, *self._before):  # what was sent first is there first
            self._demand(name)
        return tuple(self._done)

    def _group(self, chosen: tuple[str, ...], order: UpdateOrder) -> Iterator[tuple[str, ...]]:
        """Yield the updates one by one; under micro-batches together those of which none needs another's write."""
        group: tuple[str, ...] = ()
        for update in chosen:
            anchors = order.anchors[update]
            needs = any(self._closure.precedes(other, anchor) for other in group for anchor in anchors)
            if group and (needs or not any(self._graph.nodes[anchor].micro_batch for anchor in anchors)):
                yield group
                group = ()
            group += (update,)
        yield from (group,) if group else ()

    def _prepare(self, update: str, remaining: Mapping[str, tuple[str, ...]]) -> None:
        """Demand what the update's write waits for and no gradient still to come leads to, so that it need not wait."""
        bits, masks, late = self._closure.bits, self._closure.masks, 0
        for anchor in (anchor for anchors in remaining.values() for anchor in anchors):
            late |= 0 if anchor in self._done else bits[anchor]
        for name in self._closure.past(update, self._before):
            if not (masks[name] | bits[name]) & late and (update in self._never or not self._needs_wait(name)):
                self._demand(name)

    def _needs_wait(self, name: str) -> bool:
        """Return whether a node needs a message that is still on its way."""
        awaited = sum(self._closure.bits[each] for each in self._waits)
        return bool((self._closure.masks[name] | self._closure.bits[name]) & awaited)

    def _demand(self, name: str) -> None:
        """Append a node after everything it needs, what needs no message on its way first."""
        if self._needs_wait(name):
            for each in self._closure.past(name, self._before):
                if each not in self._done and not self._needs_wait(each):
                    self._append_after_needs(each)
        self._append_after_needs(name)

    def _append_after_needs(self, name: str) -> None:
        """Append a node after everything it needs (depth first, without recursion)."""
        stack = [name]
        while stack:
            node = stack[-1]
            missing = next((before for before in self._before[node] if before not in self._done), None)
            if missing is not None:
                stack.append(missing)
                continue
            stack.pop()
            self._append(node)

    def _append(self, name: str) -> None:
        """Append one node, and immediately after it the writes that become ready."""
        pending = [name]
        while pending:
            node = pending.pop(0)
            if node in self._done:
                continue
            self._accompany(node)
            self._done[node] = None
            self._waits.pop(node, None)
            for after in self._after[node]:
                self._waiting[after] -= 1
                if self._waiting[after] == 0 and self._is_immediate(self._graph.nodes[after]):
                    pending.append(after)

    def _accompany(self, name: str) -> None:
        """Before the start of a message with gradients, append that of every other that needs no further model."""
        if not _has_sets(self._graph.nodes[name]):
            return
        nodes = self._graph.nodes
        for other in [each for each in self._starts if each not in self._done and not _has_sets(nodes[each])]:
            missing = [nodes[each] for each in self._closure.past(other, self._before) if each not in self._done]
            if not any(each.called or each.derivative or each.message or each.is_write for each in missing):
                self._append_after_needs(other)

    def _is_immediate(self, node: Instruction) -> bool:
        """Return whether a node is put into the sequence as soon as nothing holds it back: writes, and their chains."""
        if node.free_early:
            return True
        if node.message and node.id not in self._hurried:
            return False
        is_free = node.defer == "never" or (self._eager and node.defer == "auto")
        return is_free and (node.is_write or node.id in self._transforms)
