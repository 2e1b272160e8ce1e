"""Give every access to a cell its version: the number of writers of the cell in the node's causal past."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from heapq import heappop, heappush
from itertools import pairwise

from msgspec import Struct
from msgspec.structs import replace

from compiler.ir.cell import Cell
from compiler.ir.digraph import NOTHING, Bits, Causality, Waiting, leave_out, number, unite
from compiler.ir.instructions import Instruction
from compiler.ir.step_graph import StepGraph
from compiler.ir.value import Read
from compiler.passes.order import find_writers


def assign_versions(graph: StepGraph) -> StepGraph:
    """Return the graph with the writers of every cell in order and every access at its version."""
    statistics = order_statistics(graph.nodes, graph.causality)
    rank = number(statistics)
    listed = find_writers(graph.nodes.values())
    writers = {cell: order_writers(names, graph.causality, rank) for cell, names in listed.items()}
    histories = {cell: History.of(names, graph.causality) for cell, names in writers.items()}
    nodes: dict[str, Instruction] = {}
    for name, node in graph.nodes.items():
        reads: list[Read] = []
        for read in node.reads:
            version = _read_version(node, read, histories.get(read.cell, UNWRITTEN), graph.causality)
            reads.append(replace(read, version=version) if version else read)
        writes = (replace(write, version=histories[write.cell].versions[name]) for write in node.writes)
        nodes[name] = replace(node, reads=tuple(reads), writes=tuple(writes)) if node.reads or node.writes else node
    return replace(graph, writers=writers, nodes=nodes)


def order_statistics(nodes: Mapping[str, Instruction], causality: Causality) -> tuple[str, ...]:
    """Return all train-mode forwards of models with buffers in the one order in which they run.

    Repeatedly the first listed op whose happens-before predecessors among them are done. Under micro-batches, ops run
    part by part together until one needs a later part of another, as after an update: it begins a new stretch.
    """
    runs: dict[str, list[str]] = {}
    for name, node in nodes.items():
        if any(write.statistics for write in node.writes):
            runs.setdefault(node.op, []).append(name)
    if not runs:
        return ()
    ordered: list[str] = []
    pending, waiting = list(runs), Waiting()
    places = {op: [causality.places[name] for name in names] for op, names in runs.items()}
    among = causality.collect(name for names in runs.values() for name in names)
    listing = number(runs)
    free: list[int] = []
    for op, names in runs.items():
        needed = NOTHING
        for name in names:
            needed = unite(needed, causality.meet(name, among))
        if waiting.add(op, leave_out(needed, causality.collect(names))):
            free.append(listing[op])
    while free:
        op = pending[heappop(free)]
        ordered.append(op)
        for other in waiting.finish(places[op]):
            heappush(free, listing[other])
    stretches = list[list[str]]()
    parts: dict[int, Bits] = {}
    """The last stretch by micro-batches."""
    for op in ordered:
        if not stretches or any(_needs_later(name, parts, nodes, causality) for name in runs[op]):
            stretches.append([])
            parts = {}
        stretches[-1].extend(runs[op])
        for name in runs[op]:
            part = nodes[name].micro_batch
            parts[part] = unite(parts.get(part, NOTHING), (causality.places[name], 1)) if part else NOTHING
    return tuple(name for stretch in stretches for name in sorted(stretch, key=lambda name: nodes[name].micro_batch))


def _needs_later(name: str, parts: Mapping[int, Bits], nodes: Mapping[str, Instruction], causality: Causality) -> bool:
    """Return whether a run comes after one of a later micro-batch; ``parts``: those before it by micro-batches."""
    own = nodes[name].micro_batch
    return any(part > own and causality.meet(name, found)[1] for part, found in parts.items())


def order_writers(names: tuple[str, ...], causality: Causality, rank: Mapping[str, int]) -> tuple[str, ...]:
    """Return the writers of one cell in order: train-mode forwards by rank, then the others by happens-before."""
    forwards = sorted((name for name in names if name in rank), key=rank.__getitem__)
    return (*forwards, *causality.sort(name for name in names if name not in rank))


class History(Struct, frozen=True, kw_only=True):
    """The writers of one cell in order."""

    versions: Mapping[str, int]
    """The version that each makes, from 1."""
    members: Bits
    places: tuple[int, ...] = ()
    """Their numbers in the causal order, where these rise; else nothing."""

    @classmethod
    def of(cls, writers: tuple[str, ...], causality: Causality) -> History:
        """Return the history of ordered writers."""
        places = tuple(causality.places[name] for name in writers)
        return cls(
            versions={name: index for index, name in enumerate(writers, 1)},
            members=causality.collect(writers),
            places=places if all(one < other for one, other in pairwise(places)) else (),
        )

    def find_last(self, node: str, causality: Causality) -> int:
        """Return the version that the last writer before a node makes, 0 where there is none."""
        base, bits = causality.meet(node, self.members)
        if self.places:
            return bisect_left(self.places, base + bits.bit_length() - 1) + 1 if bits else 0
        return max((self.versions[writer] for writer in causality.past(node, self.versions)), default=0)


UNWRITTEN = History(versions={}, members=NOTHING)


def find_unordered(graph: StepGraph) -> Iterator[tuple[Cell, str, str]]:
    """Yield (cell, writer, writer) for writers of one cell of which neither happens before the other."""
    for cell, names in graph.writers.items():
        writing = [name for name in names if graph.nodes[name].is_write]
        for first, second in pairwise(writing):
            if not graph.causality.precedes(first, second):
                yield cell, first, second


def _read_version(node: Instruction, read: Read, history: History, causality: Causality) -> int:
    """Return the version a node reads: its own place among the writers where it reads what is newest, else its past's.

    Among writers ordered by execution alone (statistics) the last one in the past counts, and all before it.
    """
    if read.streaming and node.id in history.versions:
        return history.versions[node.id] - 1
    return history.find_last(node.id, causality)
