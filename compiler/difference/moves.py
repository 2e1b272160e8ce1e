"""Find the instructions that stand elsewhere, as few as explain the new order, and what asks for it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from compiler.difference.places import drop_places
from compiler.difference.records import Move
from compiler.ir import Edge, Hazard, StepGraph

MOST = 2
"""How many reasons of one kind are told."""


def find_moves(old: StepGraph, new: StepGraph) -> Iterator[Move]:
    """Yield the instructions of both functions that changed places with others, in the new order."""
    before = {name: index for index, name in enumerate(old.sequence)}
    common = [name for name in new.sequence if name in before]
    kept = _find_longest([before[name] for name in common])
    after = {name: index for index, name in enumerate(common)}
    for name in common:
        if before[name] not in kept:
            passed = [other for other in common if (before[name] < before[other]) != (after[name] < after[other])]
            yield _explain(old, new, name, passed)


def _explain(old: StepGraph, new: StepGraph, name: str, passed: Sequence[str]) -> Move:
    """Return a move with what asks for it: the constraints with those that the instruction passed, new and old."""
    others = frozenset(passed)
    now = [edge for edge in new.edges if _joins(edge, name, others)]
    then = [edge for edge in old.edges if _joins(edge, name, others)]
    partners = dict.fromkeys(other for edge in (*now, *then) for other in (edge.before, edge.after) if other != name)
    ahead = new.sequence.index(name)
    return Move(
        label=new.nodes[name].label,
        op=new.nodes[name].op,
        before=tuple(new.nodes[other].label for other in partners if new.sequence.index(other) > ahead),
        after=tuple(new.nodes[other].label for other in partners if new.sequence.index(other) < ahead),
        reasons=_tell(new, now),
        former=_tell(old, then),
    )


def _find_longest(numbers: Sequence[int]) -> frozenset[int]:
    """Return a longest rising subsequence, by patience sorting."""
    tops: list[int] = []
    below: dict[int, int | None] = {}
    for number in numbers:
        pile = bisect_left(tops, number)
        below[number] = tops[pile - 1] if pile else None
        tops[pile : pile + 1] = [number]
    kept: set[int] = set()
    top = tops[-1] if tops else None
    while top is not None:
        kept.add(top)
        top = below[top]
    return frozenset(kept)


def _joins(edge: Edge, name: str, others: frozenset[str]) -> bool:
    """Return whether an edge other than one of data is between an instruction and one of the others."""
    if edge.hazard is Hazard.DATA:
        return False
    return (edge.before == name and edge.after in others) or (edge.after == name and edge.before in others)


def _tell(graph: StepGraph, edges: Sequence[Edge]) -> tuple[str, ...]:
    """Return the reasons of edges, the first few and without places."""
    return tuple(dict.fromkeys(drop_places(edge.why, graph) for edge in edges))[:MOST]
