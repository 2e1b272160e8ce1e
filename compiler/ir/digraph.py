"""Directed graphs over string names: the few algorithms the passes need, typed, over networkx."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


def find_cycles(edges: Iterable[tuple[str, str]]) -> tuple[tuple[str, ...], ...]:
    """Return one shortest cycle per knot of nodes that all reach each other, in the order of the edges.

    Each starts at the first node of its knot; a graph without cycles gives ().
    """
    successors: dict[str, list[str]] = {}
    for before, after in edges:
        successors.setdefault(before, []).append(after)
        successors.setdefault(after, [])
    if _is_acyclic(successors):
        return ()
    import networkx  # imported late: it costs 0.1 s, and only a spec with a cycle needs it

    graph: networkx.DiGraph[str] = networkx.DiGraph()
    graph.add_edges_from((before, after) for before, afters in successors.items() for after in afters)
    components = networkx.strongly_connected_components(graph)
    knots = (part for part in components if len(part) > 1 or any(name in successors[name] for name in part))
    position = {name: index for index, name in enumerate(successors)}
    starts = sorted((min(knot, key=position.__getitem__) for knot in knots), key=position.__getitem__)
    return tuple(_shortest_return(successors, start) for start in starts)


@dataclass(frozen=True, slots=True)
class Causality:
    """The transitive closure of an acyclic graph, as one integer bitset per node."""

    bits: Mapping[str, int]
    masks: Mapping[str, int]

    def precedes(self, before: str, after: str) -> bool:
        """Return whether ``before`` comes before ``after`` in every order."""
        return bool(self.masks[after] & self.bits[before])

    def past(self, node: str, among: Iterable[str]) -> tuple[str, ...]:
        """Return those of ``among`` that come before ``node``, in their order."""
        mask = self.masks[node]
        return tuple(name for name in among if mask & self.bits[name])


def close(predecessors: Mapping[str, Iterable[str]]) -> Causality:
    """Return the transitive closure of a graph without cycles, in O(nodes * edges / 64)."""
    bits = {name: 1 << position for position, name in enumerate(predecessors)}
    masks: dict[str, int] = {}
    for name in sort(predecessors):
        mask = 0
        for before in predecessors[name]:
            mask |= masks[before] | bits[before]
        masks[name] = mask
    return Causality(bits, masks)


def sort(predecessors: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Return the nodes in a topological order that follows the order of the mapping wherever it can."""
    done: dict[str, None] = {}
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


def _is_acyclic(successors: Mapping[str, Sequence[str]]) -> bool:
    """Return whether nodes without predecessors can be removed until none is left."""
    waiting = Counter(after for afters in successors.values() for after in afters)
    free = [name for name in successors if not waiting[name]]
    for name in free:
        for after in successors[name]:
            waiting[after] -= 1
            if not waiting[after]:
                free.append(after)
    return len(free) == len(successors)


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
