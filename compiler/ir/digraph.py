"""Directed graphs over string names: the few algorithms the passes need, typed, over networkx."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from functools import reduce
from itertools import count
from typing import TypeAlias, TypeVar

from msgspec import Struct

Node = TypeVar("Node", bound=Hashable)


def number(names: Iterable[Node]) -> dict[Node, int]:
    """Return the position of every name, from 0."""
    return dict(zip(names, count(), strict=False))


def find_cycles(edges: Iterable[tuple[str, str]]) -> tuple[tuple[str, ...], ...]:
    """Return one shortest cycle per knot of nodes that all reach each other, in the order of the edges.

    Each starts at the first node of its knot; a graph without cycles gives ().
    """
    successors: dict[str, list[str]] = {}
    for before, after in edges:
        successors.setdefault(before, []).append(after)
        successors.setdefault(after, [])
    # Without a cycle, nodes without predecessors can be removed until none is left.
    waiting = Counter(after for afters in successors.values() for after in afters)
    free = [name for name in successors if not waiting[name]]
    for name in free:
        for after in successors[name]:
            waiting[after] -= 1
            if not waiting[after]:
                free.append(after)
    if len(free) == len(successors):
        return ()
    import networkx  # imported late: it costs 0.1 s, and only a spec with a cycle needs it

    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_edges_from((before, after) for before, afters in successors.items() for after in afters)
    components = networkx.strongly_connected_components(graph)
    knots = (part for part in components if len(part) > 1 or any(name in successors[name] for name in part))
    position = number(successors)
    starts = sorted((min(knot, key=position.__getitem__) for knot in knots), key=position.__getitem__)
    return tuple(_shortest_return(successors, start) for start in starts)


Bits: TypeAlias = tuple[int, int]
"""A set of numbers: the least that it may hold, and its members counted from there, as the bits of an integer."""
NOTHING: Bits = (0, 0)


class Causality(Struct, frozen=True):
    """Which nodes of an acyclic graph come before which: for every node the marked ones before it, as a bitset.

    The marked nodes are numbered in a topological order, and a bitset begins at its least member, so that a node whose
    past is near has a small one.
    """

    places: Mapping[str, int]
    """The number of every marked node."""
    pasts: Mapping[str, Bits]

    def precedes(self, before: str, after: str) -> bool:
        """Return whether ``before``, which is marked, comes before ``after`` in every order."""
        base, bits = self.pasts[after]
        place = self.places[before] - base
        return place >= 0 and bool(bits >> place & 1)

    def past(self, node: str, among: Iterable[str]) -> tuple[str, ...]:
        """Return those of ``among``, which are marked, that come before ``node``, in their order."""
        return tuple(name for name in among if self.precedes(name, node))

    def collect(self, names: Iterable[str]) -> Bits:
        """Return some marked nodes as a bitset."""
        return collect([self.places[name] for name in names])

    def meet(self, node: str, among: Bits) -> Bits:
        """Return those of some marked nodes that come before a node."""
        return intersect(self.pasts[node], among)

    def stand_in(self, name: str, members: Sequence[str]) -> Causality:
        """Return it with a further node, which has the pasts of some marked ones and the place of the first."""
        past = unite_all(self.pasts[each] for each in members)
        return Causality({**self.places, name: self.places[members[0]]}, {**self.pasts, name: past})

    def sort(self, names: Iterable[str]) -> list[str]:
        """Return marked nodes by how many of them come before each, ties in their order."""
        listed = list(names)
        among = self.collect(listed)
        return sorted(listed, key=lambda name: self.meet(name, among)[1].bit_count())


def collect(numbers: Sequence[int]) -> Bits:
    """Return some numbers as a bitset."""
    if not numbers:
        return NOTHING
    base = min(numbers)
    held = bytearray((max(numbers) - base) // 8 + 1)
    for number in numbers:
        held[number - base >> 3] |= 1 << (number - base & 7)
    return base, int.from_bytes(held, "little")


def intersect(one: Bits, other: Bits) -> Bits:
    """Return what is in both of two bitsets."""
    if one[0] < other[0]:
        one, other = other, one
    return one[0], one[1] & other[1] >> one[0] - other[0]


def leave_out(one: Bits, other: Bits) -> Bits:
    """Return what is in the first of two bitsets alone."""
    base, bits = one
    shift = other[0] - base
    return base, bits & ~(other[1] << shift if shift >= 0 else other[1] >> -shift)


def unite(one: Bits, other: Bits) -> Bits:
    """Return what is in one of two bitsets."""
    if not one[1] or not other[1]:
        return one if one[1] else other
    if one[0] > other[0]:
        one, other = other, one
    shifted = other[1] << other[0] - one[0]
    return one if not shifted & ~one[1] else (one[0], one[1] | shifted)


def unite_all(sets: Iterable[Bits]) -> Bits:
    """Return what is in any of some bitsets."""
    return reduce(unite, sets, NOTHING)


def trim(one: Bits) -> Bits:
    """Return a bitset that begins at its least member, so that equal sets are equal."""
    least = (one[1] & -one[1]).bit_length() - 1
    return (one[0] + least, one[1] >> least) if one[1] else NOTHING


def close(predecessors: Mapping[str, Iterable[str]], marked: Container[str]) -> Causality:
    """Return which of the marked nodes come before which nodes, in a graph without cycles."""
    places: dict[str, int] = {}
    pasts: dict[str, Bits] = {}
    reached: dict[str, Bits] = {}
    """The past of every node with the node itself, if it is marked."""
    for name in sort(predecessors):
        past = unite_all(reached[before] for before in predecessors[name])
        pasts[name] = reached[name] = past
        if name in marked:
            places[name] = place = len(places)
            reached[name] = unite(past, (place, 1))
    return Causality(places, pasts)


class Waiting:
    """Names that wait until all members of a bitset are done.

    Each watches one member that is not done, the last in topological order, which tends to be done last.
    """

    def __init__(self) -> None:
        self._done = 0
        self._watching: dict[int, list[tuple[str, Bits]]] = {}

    def add(self, name: str, needed: Bits) -> bool:
        """Return whether all that a name needs is done; if not, it waits."""
        base, bits = needed
        left = bits & ~(self._done >> base)
        if left:
            self._watching.setdefault(base + left.bit_length() - 1, []).append((name, (base, left)))
        return not left

    def finish(self, places: Iterable[int]) -> list[str]:
        """Mark members as done, and return the names that need wait no more."""
        woken: list[tuple[str, Bits]] = []
        for place in places:
            self._done |= 1 << place
            woken.extend(self._watching.pop(place, ()))
        return [name for name, needed in woken if self.add(name, needed)]


def sort(predecessors: Mapping[Node, Iterable[Node]]) -> tuple[Node, ...]:
    """Return the nodes in a topological order that follows the order of the mapping wherever it can."""
    done: dict[Node, None] = {}
    for root in predecessors:
        stack = [(root, iter(predecessors[root]))]
        while stack:
            node, pending = stack[-1]
            waiting = next((before for before in pending if before not in done), None)
            if waiting is not None:
                stack.append((waiting, iter(predecessors[waiting])))
                continue
            done.setdefault(node)
            stack.pop()
    return tuple(done)


def _shortest_return(successors: Mapping[str, Iterable[str]], start: str) -> tuple[str, ...]:
    """Return a shortest path from ``start`` back to itself, without the repeated end (breadth first)."""
    paths: list[tuple[str, ...]] = [(start,)]
    seen: set[str] = set()
    for path in paths:
        for after in successors[path[-1]]:
            if after == start:
                return path
            if after not in seen:
                seen.add(after)
                paths.append((*path, after))
    raise ValueError(f"{start} lies on no cycle")
