"""Put the instructions in a sequence: values on demand, each write at its earliest legal place.

The only freedom is the order of the updates' gradients, which an order policy chooses (compiler/passes/policies.py).
Messages start as soon as what they send is there, and are waited for only where nothing else is left to do.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from heapq import heappop, heappush

from msgspec import Struct
from msgspec.structs import replace

from compiler.ir.digraph import NOTHING, Bits, Causality, Waiting, close, intersect, leave_out, number, unite
from compiler.ir.instructions import Instruction, Start
from compiler.ir.step_graph import StepGraph
from compiler.passes.policies import Policy, UpdateOrder


class Chain(Struct, frozen=True, kw_only=True):
    """The nodes whose values an update applies, each kind in the order in which it is met from the write back."""

    gradients: tuple[str, ...]
    transforms: tuple[str, ...] = ()
    """The nodes between the gradients and the write: clips, projections, sums of gradient sets."""


def find_chains(graph: StepGraph) -> Mapping[str, Chain]:
    """Return the chain of every update, in listed order: the walk back from its write ends at what differentiates.

    A verdict that says whether penalties are added is about gradients that another update applies.
    """
    chains: dict[str, Chain] = {}
    for update in filter(is_update, graph.nodes.values()):
        gradients: dict[str, None] = {}
        transforms: dict[str, None] = {}
        pending = [update]
        for node in pending:  # breadth first: it grows
            for use in node.uses:
                name = graph.producers.get(use.value)
                if name is None or use.value in node.skipped_by:
                    continue
                if graph.nodes[name].derivative is not None:
                    gradients[name] = None
                elif name not in transforms:
                    transforms[name] = None
                    pending.append(graph.nodes[name])
        chains[update.id] = Chain(gradients=tuple(gradients), transforms=tuple(transforms))
    return chains


def is_update(node: Instruction) -> bool:
    """Return whether a node applies gradients: it steps an optimizer."""
    return bool(node.writes) and any(write.cell.kind == "optimizer" for write in node.writes)


def schedule(graph: StepGraph, policy: Policy) -> StepGraph:
    """Return the graph with its sequence under an order policy; the graph must have no cycle."""
    chains, found = find_chains(graph), defaultdict[str, set[str]](set)
    for edge in graph.edges:
        found[edge.after].add(edge.before)
    # What comes directly before a node, as it is listed.
    before = {name: sorted(found[name], key=graph.listing.__getitem__) for name in graph.nodes}
    marked = {*chains}.union(*(chain.gradients for chain in chains.values()))
    marked.update(name for name, node in graph.nodes.items() if node.message)
    closure = close(before, marked)
    chosen = tuple(chains)
    if len(chains) > 1:
        chosen = policy.choose(describe_updates(graph, chains, before, closure), graph)
    sequence = _Scheduler(graph, chains, before, closure, eager=policy.eager).run(chosen)
    return replace(graph, sequence=sequence)


def describe_updates(
    graph: StepGraph, chains: Mapping[str, Chain], before: Mapping[str, list[str]], closure: Causality
) -> UpdateOrder:
    """Return what an order policy needs to know: each update's gradients, what they need, what its write waits for."""
    gradients = {name: chain.gradients for name, chain in chains.items()}
    every = closure.collect(gradient for found in gradients.values() for gradient in found)

    # By combined verdict: what combines it, and the gradients that two or more of those verdicts follow.
    twice: dict[str, tuple[str, Bits]] = {}
    combining = [name for name, node in graph.nodes.items() if node.combined]
    for name in combining:
        once, again = NOTHING, NOTHING
        for each in before[name]:
            past = closure.meet(each, every)
            once, again = unite(once, past), unite(again, intersect(once, past))
        twice |= dict.fromkeys(before[name], (name, again))

    def find_needed(update: str, nodes: tuple[str, ...]) -> Bits:
        """Return the gradients that must come before one of some nodes, but for those of an update."""
        found = NOTHING
        for name in nodes:
            found = unite(found, closure.meet(name, every))
        return leave_out(found, closure.collect(gradients[update]))

    return UpdateOrder(
        gradients=gradients,
        places=closure.places,
        needed={name: find_needed(name, gradients[name]) for name in chains},
        awaited={name: find_needed(name, (name,)) for name in chains},
        always=frozenset(
            name for name, chain in chains.items() if _is_always_deferred(name, chain, before, closure, twice)
        ),
        never=frozenset(name for name in chains if graph.nodes[name].defer == "never"),
    )


def _is_always_deferred(
    update: str,
    chain: Chain,
    before: Mapping[str, list[str]],
    closure: Causality,
    twice: Mapping[str, tuple[str, Bits]],
) -> bool:
    """Return whether, whichever of an update's gradients is the last, something stands between it and the write.

    What stands between them comes before the write or one of the nodes that are left to do, or leads there. Of verdicts
    that are combined, the update's own is no such thing: another must follow the gradient (``twice``).
    """
    own = {*chain.gradients, *chain.transforms}
    combined = dict(twice[name] for name in own if name in twice)
    others = {name for each in (update, *own) for name in before[each] if name not in own}
    gradients = closure.collect(chain.gradients)
    followed = NOTHING
    for name in chain.gradients:
        followed = unite(followed, closure.meet(name, gradients))
    lasts = leave_out(gradients, followed)
    between = NOTHING
    for name in others:
        found = intersect(combined[name], lasts) if name in combined else closure.meet(name, lasts)
        between = unite(between, found)
    return bool(lasts[1]) and not leave_out(lasts, between)[1]


class _Scheduler:
    """Appends nodes on demand: a node's predecessors first, and every write as soon as nothing holds it back."""

    def __init__(
        self,
        graph: StepGraph,
        chains: Mapping[str, Chain],
        before: Mapping[str, list[str]],
        closure: Causality,
        *,
        eager: bool,
    ) -> None:
        self._graph = graph
        self._chains = chains
        self._eager = eager
        self._before = before
        self._closure = closure
        self._done: dict[str, int] = {}
        """Where each node stands in the sequence."""
        self._writes = {name: None for name, node in graph.nodes.items() if node.is_write}
        self._transforms, self._gradients, self._never = set[str](), set[str](), set[str]()
        self._hurried = set[str]()
        """What an update needs at once that says `defer: never`: nothing else runs while its messages travel."""
        for update, chain in chains.items():
            self._transforms.update(chain.transforms)
            self._gradients.update(chain.gradients)
            if graph.nodes[update].defer == "never":
                self._never.add(update)
                self._hurried.update(chain.transforms)
        self._late = closure.collect(self._gradients)
        """The gradients that are not taken yet."""
        waiting = (name for name, node in graph.nodes.items() if node.message and name not in self._hurried)
        self._waits = dict.fromkeys(waiting)
        """The nodes that wait for a message and are not done."""
        self._awaited = closure.collect(self._waits)
        starts = (node.id for node in graph.nodes.values() if isinstance(node, Start) and not node.has_sets)
        self._company = [(graph.listing[name], name) for name in starts]
        """The starts of messages without gradients of which nothing is known to be missing, as a heap."""
        self._held: dict[str, list[tuple[int, str]]] = {}
        """The others, by a node that is missing."""
        self._waiting: dict[str, int] = {}
        self._after = defaultdict[str, list[str]](list)
        for name, needed in self._before.items():
            self._waiting[name] = len(needed)
            for other in needed:
                self._after[other].append(name)

    def run(self, chosen: tuple[str, ...]) -> tuple[str, ...]:
        """Return the sequence for updates in the chosen order, then everything else in listed order."""
        remaining, nodes = set(chosen), self._graph.nodes
        for name in self._writes:
            if not self._before[name] and self._is_immediate(nodes[name]):
                self._append(name)
        for together in self._group(chosen):
            # Micro-batch by micro-batch: the graph of one is gone before the next.
            pairs = ((gradient, update) for update in together for gradient in self._chains[update].gradients)
            gradients = sorted(pairs, key=lambda pair: nodes[pair[0]].micro_batch)
            last = {update: nodes[gradient].micro_batch for gradient, update in gradients}
            for gradient, update in gradients:
                if update in remaining and nodes[gradient].micro_batch == last[update]:
                    remaining.discard(update)
                    self._prepare(update)
                self._demand(gradient)
        self._finish()
        return tuple(self._done)

    def _finish(self) -> None:
        """Append what is left in listed order, writes last, as far as the messages are there that it needs.

        If nothing else is left, a message is waited for: the one that was sent first is there first.
        """
        rest = (*(name for name in self._before if name not in self._writes), *self._writes)
        place, waits = number(rest), number(self._waits)
        users, following = Waiting(), Waiting()
        ready = [name for name in rest if users.add(name, self._find_awaited(name))]
        first = [name for name in waits if following.add(name, self._closure.meet(name, self._awaited))]
        sent: list[tuple[int, int, str]] = []
        while ready or first or sent:
            for name in ready:
                self._demand(name)
            for name in first:
                last = max((self._done[each] for each in self._before[name]), default=-1)
                heappush(sent, (last, waits[name], name))
            ready, first = [], []
            if sent:
                *_, name = heappop(sent)
                self._demand(name)
                came = (self._closure.places[name],)
                ready, first = sorted(users.finish(came), key=place.__getitem__), following.finish(came)

    def _group(self, chosen: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        """Yield the updates one by one; under micro-batches together those of which none needs another's write."""
        group: list[str] = []
        written = NOTHING
        for update in chosen:
            gradients = self._chains[update].gradients
            needs = any(self._closure.meet(gradient, written)[1] for gradient in gradients)
            if group and (needs or not any(self._graph.nodes[gradient].micro_batch for gradient in gradients)):
                yield tuple(group)
                group, written = [], NOTHING
            group.append(update)
            written = unite(written, self._closure.collect((update,)))
        yield from (tuple(group),) if group else ()

    def _prepare(self, update: str) -> None:
        """Schedule the remaining predecessors of the update's write that no later gradient will schedule."""
        later = leave_out(self._late, self._closure.collect(self._chains[update].gradients))
        for name in self._find_missing(update, later):
            is_late = name in self._gradients or self._closure.meet(name, self._late)[1]
            if not is_late and (update in self._never or not self._needs_wait(name)):
                self._demand(name)

    def _find_missing(self, name: str, later: Bits = NOTHING) -> list[str]:
        """Return what comes before a node and is not done, in listed order.

        Verdicts that are combined are left to their own updates, as long as some are about ``later`` gradients.
        """
        missing, pending = set[str](), [name]
        while pending:
            each = pending.pop()
            if later[1] and self._graph.nodes[each].combined and self._closure.meet(each, later)[1]:
                continue
            fresh = [other for other in self._before[each] if other not in self._done and other not in missing]
            missing.update(fresh)
            pending.extend(fresh)
        return sorted(missing, key=self._graph.listing.__getitem__)

    def _needs_wait(self, name: str) -> bool:
        """Return whether a node needs a message that is still on its way."""
        return bool(self._find_awaited(name)[1])

    def _find_awaited(self, name: str) -> Bits:
        """Return the nodes that wait for messages still on their way, among a node and what it needs."""
        own = self._closure.collect((name,)) if name in self._waits else NOTHING
        return unite(self._closure.meet(name, self._awaited), own)

    def _demand(self, name: str) -> None:
        """Append a node after everything it needs, what needs no message on its way first."""
        if self._waits and self._needs_wait(name):
            for each in self._find_missing(name):
                if each not in self._done and not self._needs_wait(each):
                    self._append_after_needs(each)
        self._append_after_needs(name)

    def _append_after_needs(self, name: str) -> None:
        """Append a node after everything it needs (depth first, without recursion)."""
        stack = [(name, iter(self._before[name]))]
        while stack:
            node, needed = stack[-1]
            missing = next((before for before in needed if before not in self._done), None)
            if missing is not None:
                stack.append((missing, iter(self._before[missing])))
                continue
            stack.pop()
            self._append(node)

    def _append(self, name: str) -> None:
        """Append one node, and immediately after it the writes that become ready."""
        pending = deque([name])
        while pending:
            node = pending.popleft()
            if node in self._done:
                continue
            self._accompany(node)
            self._done[node] = len(self._done)
            for held in self._held.pop(node, ()):
                heappush(self._company, held)
            if node in self._gradients:
                self._late = leave_out(self._late, self._closure.collect((node,)))
            if node in self._waits:
                del self._waits[node]
                self._awaited = leave_out(self._awaited, self._closure.collect((node,)))
            for after in self._after[node]:
                self._waiting[after] -= 1
                if self._waiting[after] == 0 and self._is_immediate(self._graph.nodes[after]):
                    pending.append(after)

    def _accompany(self, name: str) -> None:
        """Before the start of a message with gradients, append that of every other that needs no further model."""
        node = self._graph.nodes[name]
        if not (isinstance(node, Start) and node.has_sets):
            return
        passed, later = -1, list[tuple[int, str]]()
        while self._company:
            start = place, other = heappop(self._company)
            if place < passed:  # it came too late for this message
                later.append(start)
                continue
            passed = place
            lacking = self._find_lacking(other)
            if lacking:
                self._held.setdefault(lacking, []).append(start)
            elif other not in self._done:
                self._append_after_needs(other)
        for start in later:
            heappush(self._company, start)

    def _find_lacking(self, name: str) -> str:
        """Return a call, gradient, wait or write that a node needs and that is not done; nothing if it needs none.

        Such take time: the message of the node would not leave with the one that is sent now.
        """
        pending, seen = [name], {name}
        for each in pending:  # it grows: the nearest first
            fresh = [other for other in self._before[each] if other not in self._done and other not in seen]
            for other in fresh:
                node = self._graph.nodes[other]
                if node.called or node.derivative or node.message or node.is_write:
                    return other
            seen.update(fresh)
            pending.extend(fresh)
        return ""

    def _is_immediate(self, node: Instruction) -> bool:
        """Return whether a node is put into the sequence as soon as nothing holds it back: writes, and their chains."""
        if node.free_early:
            return True
        if node.message and node.id not in self._hurried:
            return False
        is_free = node.defer == "never" or (self._eager and node.defer == "auto")
        return is_free and (node.is_write or node.id in self._transforms)
