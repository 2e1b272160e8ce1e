"""W-NO-EFFECT: an `after` without which every op reads the same versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush

from msgspec import Struct

from compiler.ir.cell import Cell
from compiler.ir.diagnose import span_of
from compiler.ir.digraph import NOTHING, Bits, intersect, leave_out, number, unite, unite_all
from compiler.ir.instructions import TOGETHER
from compiler.ir.mode_graph import ModeGraph
from compiler.ir.step_graph import Edge, Hazard
from compiler.passes.commits import find_gradients, find_sharing, takes_part
from compiler.passes.order import find_writers
from graphspec.diagnostics import Diagnostic, Span


class _After(Struct, frozen=True):
    """An `after: other` of an op, where both are there and the other one writes."""

    name: str
    other: str
    span: Span | None


def check_no_effect(graph: ModeGraph) -> Iterator[Diagnostic]:
    """Yield W-NO-EFFECT for an `after` without which every op reads the same versions, outside of blocks and phases."""
    declared = tuple(_find_declared(graph))
    if not declared:
        return
    writers = {other: 1 << place for place, other in enumerate(dict.fromkeys(each.other for each in declared))}
    read = _find_read_downstream(graph, writers)
    needless = [each for each in declared if not read[each.name] & writers[each.other]]
    order = _Order.of(graph) if needless else None
    for each in needless:
        if order is not None and not order.changes_without(each):
            yield Diagnostic(
                code="W-NO-EFFECT",
                severity="warning",
                message=f"`after: {each.other}` on '{each.name}' changes nothing: every op reads the same without it",
                span=each.span,
                label="no effect",
                help=f"put it on the forward that should see the result of '{each.other}', or remove it",
            )


def _find_declared(graph: ModeGraph) -> Iterator[_After]:
    """Yield every `after` that may be removed: a block or phase is written once, and another use may need it."""
    for name, node in graph.nodes.items():
        for index, other in enumerate(graph.spec.ops[name].after or () if node.id == node.op else ()):
            if other in graph.nodes and graph.nodes[other].writes and not (node.within or graph.nodes[other].within):
                span = graph.spec.span("ops", name, "after", index) or span_of(graph.spec, name)
                if span is None or not span.via:
                    yield _After(name, other, span)


def _find_read_downstream(graph: ModeGraph, writers: Mapping[str, int]) -> Mapping[str, int]:
    """Return which writers each node, or something computed from it, reads a cell of; each writer is one bit.

    It decides nearly every `after`: it is on a forward, for the sake of what is computed from it.
    """
    written: dict[Cell, int] = {}
    for writer, bit in writers.items():
        for write in graph.nodes[writer].writes:
            written[write.cell] = written.get(write.cell, 0) | bit
    found = dict.fromkeys(graph.causality.pasts, 0)
    for name in reversed([*graph.causality.pasts]):
        node = graph.nodes.get(name)
        if node is not None:
            for read in node.reads:
                found[name] |= written.get(read.cell, 0)
            for use in node.uses:
                if use.value in graph.producers:
                    found[graph.producers[use.value]] |= found[name]
    return found


class _Order(Struct, frozen=True, kw_only=True):
    """The order of a graph, from which one edge may be taken."""

    graph: ModeGraph
    places: Mapping[str, int]
    """Where each node stands in a topological order."""
    before: Mapping[str, Sequence[Edge]]
    after: Mapping[str, Sequence[str]]
    relevant: Mapping[str, Bits]
    """By node of this mode, the writers that matter to it: those of the cells that it reads or writes.

    To a gradient whose update may be skipped together with others, all updates matter: those before it decide with
    which.
    """
    relevant_later: Mapping[str, Bits]
    """By node, the writers that matter to it or to what comes after it."""

    @classmethod
    def of(cls, graph: ModeGraph) -> _Order:
        """Return the order of a graph."""
        before: dict[str, list[Edge]] = {name: [] for name in graph.everything}
        after: dict[str, list[str]] = {name: [] for name in graph.everything}
        for edge in graph.ordering:
            before[edge.after].append(edge)
            after[edge.before].append(edge.after)
        known = find_writers(graph.nodes.values())
        writers = {cell: graph.causality.collect(names) for cell, names in known.items()}
        updates = graph.causality.collect({node.op for node in graph.nodes.values() if takes_part(node)})
        sharing = find_sharing(graph.nodes.values())
        is_checked = graph.spec.loss_scale is not None or any(node.overflow in TOGETHER for node in sharing)
        grouped = frozenset[str]()  # the gradients whose updates may be skipped together
        if is_checked and len({node.op for node in sharing}) > 1:
            grouped = frozenset(each for node in sharing for each in find_gradients(graph.nodes, node, graph.producers))
        relevant: dict[str, Bits] = {}
        for name, node in graph.nodes.items():
            found = unite_all(writers.get(each.cell, NOTHING) for each in (*node.reads, *node.writes))
            relevant[name] = unite(found, updates) if name in grouped else found
        later: dict[str, Bits] = {}
        for name in reversed([*graph.causality.pasts]):
            later[name] = unite_all((relevant.get(name, NOTHING), *(later[each] for each in after[name])))
        places = number(graph.causality.pasts)
        return cls(graph=graph, places=places, before=before, after=after, relevant=relevant, relevant_later=later)

    def changes_without(self, declared: _After) -> bool:
        """Return whether other writers of what matters to some node come before it, if one `after` is dropped.

        The search ends at nodes that still have all of their past: so has what comes after them.
        """
        lost: dict[str, Bits] = {}
        at_risk = {declared.name: intersect(self._close(declared.other), self.relevant_later[declared.name])}
        pending = [(self.places[declared.name], declared.name)]
        while pending:
            name = heappop(pending)[1]
            left = at_risk[name]
            for edge in self.before[name]:
                is_dropped = (edge.before, name, edge.hazard) == (declared.other, declared.name, Hazard.DECLARED)
                if left[1] and not is_dropped:
                    left = leave_out(left, leave_out(self._close(edge.before), lost.get(edge.before, NOTHING)))
            if not left[1]:
                continue
            lost[name] = left
            if intersect(left, self.relevant.get(name, NOTHING))[1]:
                return True
            for later in self.after[name]:
                if later not in at_risk:
                    heappush(pending, (self.places[later], later))
                at_risk[later] = unite(at_risk.get(later, NOTHING), left)
        return False

    def _close(self, name: str) -> Bits:
        """Return the writers that come before a node, and the node, if it writes."""
        causality = self.graph.causality
        own = (causality.places[name], 1) if name in causality.places else NOTHING
        return unite(causality.pasts[name], own)
