"""Order policies: in which order the updates' gradients are taken. Numbers never depend on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import permutations

from compiler.ir.step_graph import StepGraph

EXACT_LIMIT = 10
"""The most updates for which ``fewest`` is exact (a table over all subsets); beyond, greedy."""
MEMORY_LIMIT = 6
"""The most updates for which ``memory`` tries every order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateOrder:
    """The updates in listed order, and what binds their order."""

    anchors: Mapping[str, tuple[str, ...]]
    """Update -> the gradients after which only its own transforms and its write are left to do."""
    before: Mapping[str, frozenset[str]]
    """Update -> other updates whose anchors its own anchors need."""
    waits: Mapping[str, frozenset[str]]
    """Update -> other updates whose anchors its write waits for."""
    never: frozenset[str]
    """Updates that say `defer: never`."""
    always: frozenset[str] = frozenset()
    """Updates that are deferred in every order: something after their own anchors must precede their write."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the updates in listed order."""
        return tuple(self.anchors)

    def cost(self, update: str, done: frozenset[str]) -> int:
        """Return what it costs to take an update's gradient after exactly those of ``done``.

        1 if the update is then deferred, more than all others together if it says `defer: never`.
        """
        if self.waits[update] <= done and update not in self.always:
            return 0
        return len(self.anchors) + 1 if update in self.never else 1

    def ready(self, done: frozenset[str]) -> tuple[str, ...]:
        """Return the updates not in ``done`` whose gradients can be taken next, in listed order.

        Where each needs some gradient of another's, as those of one micro-batch come before the next, any may be next.
        """
        left = tuple(name for name in self.anchors if name not in done)
        return tuple(name for name in left if self.before[name] <= done) or left


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How to order the updates, and whether writes stand at their earliest legal place."""

    name: str
    choose: Callable[[UpdateOrder, StepGraph], tuple[str, ...]]
    eager: bool = True


def choose_listed(order: UpdateOrder, graph: StepGraph) -> tuple[str, ...]:
    """Return the updates in listed order, except where one needs another's gradient first."""
    placed: tuple[str, ...] = ()
    while len(placed) < len(order.anchors):
        placed += order.ready(frozenset(placed))[:1]
    return placed


def choose_fewest(order: UpdateOrder, graph: StepGraph) -> tuple[str, ...]:
    """Return the order with the fewest deferrals, ties by listing.

    An update is deferred iff its write waits for a gradient taken later. Exact by dynamic programming over subsets of
    updates already placed, O(2^n n); beyond EXACT_LIMIT greedy: an update free of deferral whenever there is one.
    """
    exact = len(order.anchors) <= EXACT_LIMIT
    rest = _count_deferrals(order) if exact else dict[frozenset[str], float]()
    placed: tuple[str, ...] = ()
    while len(placed) < len(order.anchors):
        done = frozenset(placed)
        cheapest = min(order.ready(done), key=lambda name: order.cost(name, done) + rest.get(done | {name}, 0.0))
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


def _count_deferrals(order: UpdateOrder) -> dict[frozenset[str], float]:
    """Return, for every set of updates already placed, the least cost of the rest."""
    best: dict[frozenset[str], float] = {frozenset(order.names): 0.0}
    for mask in range(2 ** len(order.names) - 2, -1, -1):
        done = frozenset(name for position, name in enumerate(order.names) if mask >> position & 1)
        options = (order.cost(name, done) + best[done | {name}] for name in order.ready(done))
        best[done] = min(options, default=float("inf"))
    return best


def _peak(order: UpdateOrder, graph: StepGraph, candidate: tuple[str, ...]) -> int:
    """Return the peak number of recorded nodes and gradient sets that an order keeps alive."""
    nodes: dict[str, frozenset[str]] = {}  # those on the paths of an update's gradients, and of gradients before them
    for name in candidate:
        anchors = order.anchors[name]
        paths = (
            path.nodes
            for gradient, path in graph.paths.items()
            if gradient in anchors or any(graph.causality.precedes(gradient, anchor) for anchor in anchors)
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
