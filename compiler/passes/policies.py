"""Order policies: in which order the updates' gradients are taken. Numbers never depend on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from heapq import heappop, heappush
from itertools import permutations

from msgspec import Struct

from compiler.ir.digraph import Bits, Waiting, number
from compiler.ir.step_graph import StepGraph

EXACT_LIMIT = 10
"""The most updates for which ``fewest`` is exact (a table over all subsets); beyond, greedy."""
MEMORY_LIMIT = 6
"""The most updates for which ``memory`` tries every order."""


class UpdateOrder(Struct, frozen=True, kw_only=True, dict=True):
    """The updates in listed order, and what binds their order."""

    gradients: Mapping[str, tuple[str, ...]]
    """Update -> the gradients after which only its own transforms and its write are left to do."""
    places: Mapping[str, int]
    """Their numbers in the sets below."""
    needed: Mapping[str, Bits]
    """Update -> gradients of others that its own gradients need."""
    awaited: Mapping[str, Bits]
    """Update -> gradients of others that its write waits for."""
    never: frozenset[str]
    """Updates that say `defer: never`."""
    always: frozenset[str] = frozenset()
    """Updates that are deferred in every order: something after their own gradients must precede their write."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the updates in listed order."""
        return tuple(self.gradients)

    @cached_property
    def owners(self) -> Mapping[int, tuple[str, ...]]:
        """Return the updates that a gradient is of, by its number."""
        found: dict[int, list[str]] = {}
        for name, gradients in self.gradients.items():
            for gradient in dict.fromkeys(gradients):
                found.setdefault(self.places[gradient], []).append(name)
        return {place: tuple(names) for place, names in found.items()}

    @cached_property
    def before(self) -> Mapping[str, frozenset[str]]:
        """Return, by update, the others whose gradients its own gradients need."""
        return {name: self._find_owners(gradients) for name, gradients in self.needed.items()}

    @cached_property
    def waits(self) -> Mapping[str, frozenset[str]]:
        """Return, by update, the others whose gradients its write waits for."""
        return {name: self._find_owners(gradients) for name, gradients in self.awaited.items()}

    def _find_owners(self, gradients: Bits) -> frozenset[str]:
        """Return the updates that some gradients are of."""
        base, bits = gradients
        places = (base + place for place in range(bits.bit_length()) if bits >> place & 1)
        return frozenset(name for place in places for name in self.owners[place])

    def cost(self, update: str, done: frozenset[str]) -> int:
        """Return what it costs to take an update's gradient after exactly those of ``done``.

        1 if the update is then deferred, more than all others together if it says `defer: never`.
        """
        if self.waits[update] <= done and update not in self.always:
            return 0
        return len(self.gradients) + 1 if update in self.never else 1

    def ready(self, done: frozenset[str]) -> tuple[str, ...]:
        """Return the updates not in ``done`` whose gradients can be taken next, in listed order.

        Where each needs some gradient of another's, as those of one micro-batch come before the next, any may be next.
        """
        left = tuple(name for name in self.gradients if name not in done)
        return tuple(name for name in left if self.before[name] <= done) or left


class Policy(Struct, frozen=True, kw_only=True):
    """How to order the updates, and whether writes stand at their earliest legal place."""

    name: str
    choose: Callable[[UpdateOrder, StepGraph], tuple[str, ...]]
    eager: bool = True


def choose_listed(order: UpdateOrder, graph: StepGraph) -> tuple[str, ...]:
    """Return the updates in listed order, except where one needs another's gradient first."""
    return _choose_greedily(order, {})


def choose_fewest(order: UpdateOrder, graph: StepGraph) -> tuple[str, ...]:
    """Return the order with the fewest deferrals, ties by listing.

    An update is deferred iff its write waits for a gradient taken later. Exact by dynamic programming over subsets of
    updates already placed, O(2^n n); beyond EXACT_LIMIT greedy: an update free of deferral whenever there is one.
    """
    if len(order.gradients) > EXACT_LIMIT:
        return _choose_greedily(order, {name: 2 if name in order.never else 1 for name in order.gradients})
    # For every set of updates already placed, the least cost of the rest.
    rest: dict[frozenset[str], float] = {frozenset(order.names): 0.0}
    for mask in range(2 ** len(order.names) - 2, -1, -1):
        done = frozenset(name for position, name in enumerate(order.names) if mask >> position & 1)
        options = (order.cost(name, done) + rest[done | {name}] for name in order.ready(done))
        rest[done] = min(options, default=float("inf"))
    placed = tuple[str, ...]()
    while len(placed) < len(order.gradients):
        done = frozenset(placed)
        cheapest = min(order.ready(done), key=lambda name: order.cost(name, done) + rest[done | {name}])
        placed += (cheapest,)
    return placed


def choose_memory(order: UpdateOrder, graph: StepGraph) -> tuple[str, ...]:
    """Return the order with the fewest forward graphs and gradient sets alive at the same time, ties by listing.

    Sizes are not known here, so every recorded node and every gradient set counts one. Exact up to MEMORY_LIMIT
    updates, in listed order beyond.
    """
    names = choose_listed(order, graph)
    if len(names) > MEMORY_LIMIT:
        return names
    legal = (
        candidate
        for candidate in permutations(names)
        if all(name in order.ready(frozenset(candidate[:index])) for index, name in enumerate(candidate))
    )
    return min(legal, key=lambda candidate: _peak(order, graph, candidate))


POLICIES: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy(name="fewest", choose=choose_fewest),
        Policy(name="listed", choose=choose_listed),
        # By hand, people put every write at the end; this policy exists for comparison.
        Policy(name="latest", choose=choose_listed, eager=False),
        Policy(name="memory", choose=choose_memory),
    )
}


def _choose_greedily(order: UpdateOrder, costs: Mapping[str, int]) -> tuple[str, ...]:
    """Return the updates, each the cheapest whose gradients can be taken next, ties by listing.

    ``costs``: of those that would be deferred, next to which all others are free; without them all are free. Where each
    needs some gradient of another's, any may be next.
    """
    listing = number(order.gradients)
    needing, awaiting = Waiting(), Waiting()
    left = {place: len(names) for place, names in order.owners.items()}
    placed: dict[str, None] = {}
    ready = {name for name, needed in order.needed.items() if needing.add(name, needed)}
    free = {name for name, awaited in order.awaited.items() if awaiting.add(name, awaited)}

    def rank(name: str) -> tuple[int, int, str]:
        """Return what a queue orders a name by."""
        is_free = not costs or (name in free and name not in order.always)
        return 0 if is_free else costs[name], listing[name], name

    every, next_ones = sorted(map(rank, order.gradients)), sorted(map(rank, ready))
    while len(placed) < len(order.gradients):
        while next_ones and next_ones[0][2] in placed:
            heappop(next_ones)
        while every[0][2] in placed:
            heappop(every)
        name = (next_ones or every)[0][2]
        placed[name] = None
        done: list[int] = []
        for place in dict.fromkeys(order.places[gradient] for gradient in order.gradients[name]):
            left[place] -= 1
            done += [] if left[place] else [place]
        for woken in awaiting.finish(done):
            free.add(woken)
            heappush(every, rank(woken))
            if woken in ready:
                heappush(next_ones, rank(woken))
        for woken in needing.finish(done):
            ready.add(woken)
            heappush(next_ones, rank(woken))
    return tuple(placed)


def _peak(order: UpdateOrder, graph: StepGraph, candidate: tuple[str, ...]) -> int:
    """Return the peak number of recorded nodes and gradient sets that an order keeps alive."""
    nodes: dict[str, frozenset[str]] = {}  # those on the paths of an update's gradients, and of gradients before them
    for name in candidate:
        gradients = order.gradients[name]
        paths = (
            path.nodes
            for gradient, path in graph.paths.items()
            if gradient in gradients or any(graph.causality.precedes(gradient, other) for other in gradients)
        )
        nodes[name] = frozenset[str]().union(*paths)
    sizes: list[int] = []
    for index in range(len(candidate)):
        started = frozenset[str]().union(*(nodes[name] for name in candidate[: index + 1]))
        needed = frozenset[str]().union(*(nodes[name] for name in candidate[index:]))
        done = frozenset(candidate[: index + 1])
        held = sum(not order.waits[name] <= done - {candidate[index]} for name in done)
        sizes.append(len(started & needed) + held)
    return max(sizes, default=0)
