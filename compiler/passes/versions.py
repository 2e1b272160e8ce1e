"""Give every access to a cell its version: the number of writers of the cell in the node's causal past."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from compiler.ir.cell import Cell
from compiler.ir.digraph import Causality
from compiler.ir.instructions import Instruction
from compiler.ir.step_graph import StepGraph
from compiler.ir.value import Read
from compiler.passes.order import find_writers


def assign_versions(graph: StepGraph) -> StepGraph:
    """Return the graph with the writers of every cell in order and every access at its version."""
    statistics = order_statistics(graph.nodes, graph.causality)
    writers = {
        cell: order_writers(names, graph, statistics) for cell, names in find_writers(graph.nodes.values()).items()
    }
    positions = {cell: {name: index for index, name in enumerate(names)} for cell, names in writers.items()}
    nodes: dict[str, Instruction] = {}
    for name, node in graph.nodes.items():
        reads: list[Read] = []
        for read in node.reads:
            past, places = writers.get(read.cell, ()), positions.get(read.cell, {})
            version = _read_version(node, read, past, places, graph.causality)
            reads.append(replace(read, version=version) if version else read)
        writes = (replace(write, version=positions[write.cell][name] + 1) for write in node.writes)
        nodes[name] = replace(node, reads=tuple(reads), writes=tuple(writes)) if node.reads or node.writes else node
    return replace(graph, writers=writers, nodes=nodes)


def order_statistics(nodes: Mapping[str, Instruction], causality: Causality) -> tuple[str, ...]:
    """Return all train-mode forwards of models with buffers in the one order in which they run.

    Repeatedly the first listed op whose happens-before predecessors among them are done. Under micro-batches, ops run
    part by part together until one needs a later part of another, as after an update: it begins a new stretch.
    """
    runs: dict[str, tuple[str, ...]] = {}
    for name, node in nodes.items():
        if any(write.statistics for write in node.writes):
            runs[node.op] = (*runs.get(node.op, ()), name)
    pending, stretches = dict(runs), list[list[str]]()
    while pending:
        waiting = [name for names in pending.values() for name in names]
        op = next(
            op
            for op, names in pending.items()
            if all(other in names for name in names for other in causality.past(name, waiting))
        )
        names = pending.pop(op)
        if not stretches or any(_needs_later(name, stretches[-1], nodes, causality) for name in names):
            stretches.append([])
        stretches[-1].extend(names)
    return tuple(name for stretch in stretches for name in sorted(stretch, key=lambda name: nodes[name].micro_batch))


def _needs_later(name: str, stretch: list[str], nodes: Mapping[str, Instruction], causality: Causality) -> bool:
    """Return whether a run comes after one of a later micro-batch."""
    return any(nodes[other].micro_batch > nodes[name].micro_batch for other in causality.past(name, stretch))


def order_writers(names: tuple[str, ...], graph: StepGraph, statistics: tuple[str, ...]) -> tuple[str, ...]:
    """Return the writers of one cell in order: train-mode forwards as they run, then the others by happens-before."""
    forwards = [name for name in statistics if name in names]
    others = [name for name in names if name not in statistics]
    return (*forwards, *sorted(others, key=lambda name: len(graph.causality.past(name, others))))


def find_unordered(graph: StepGraph) -> Iterator[tuple[Cell, str, str]]:
    """Yield (cell, writer, writer) for writers of one cell of which neither happens before the other."""
    for cell, names in graph.writers.items():
        writing = [name for name in names if graph.nodes[name].is_write]
        for first, second in pairwise(writing):
            if not graph.causality.precedes(first, second):
                yield cell, first, second


def _read_version(
    node: Instruction, read: Read, writers: tuple[str, ...], positions: Mapping[str, int], causality: Causality
) -> int:
    """Return the version a node reads: its own place among the writers where it reads what is newest, else its past's.

    Among writers ordered by execution alone (statistics) the last one in the past counts, and all before it.
    """
    if read.streaming and node.id in positions:
        return positions[node.id]
    return max((positions[writer] + 1 for writer in causality.past(node.id, writers)), default=0)
