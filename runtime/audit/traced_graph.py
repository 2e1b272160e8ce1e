"""A trace as the compiler's graph: cells, versions and nodes, with the edges that a backward needs.

The edges are those of `compiler/passes/hazards.py`, found by the same pass as for a spec. A spec is ordered so that
they hold; a trace has an order already, which may break them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from compiler.ir.cell import Cell
from compiler.ir.digraph import Causality
from compiler.ir.hazard_table import TABLES
from compiler.ir.instructions import Apply, Gradient, Instruction
from compiler.ir.instructions import Forward as Call
from compiler.ir.step_graph import Edge, GradientPath, Hazard, StepGraph
from compiler.ir.value import Read as CellRead
from compiler.ir.value import Write as CellWrite
from compiler.passes.hazards import find_hazards
from runtime.audit.trace import Backward, Forward, Place, Read, Stored, Trace, Update, Write


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Writes that belong together: those of one step of an optimizer, one call of a model, or one line."""

    id: str
    place: Place
    what: str
    """``optimizer.step()``, ``a forward of net``, ``clamp_``."""
    position: int
    """Of its last write among the events."""
    versions: Mapping[int, int]
    """Tensor -> the version that it leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """An edge that the executed order breaks: the write came before the gradient that still needed what was there."""

    edge: Edge
    gradient: Backward
    writer: Writer
    cell: str
    """What was written, at its version: ``net.params@1``."""
    reads: tuple[Read, ...]


def group_writes(trace: Trace) -> tuple[Writer, ...]:
    """Return the writes of a trace, in order."""
    writers: list[Writer] = []
    open_: list[tuple[int, Write]] = []

    def finish(what: str = "", place: Place | None = None) -> None:
        """Add the writes since the last one as one writer."""
        if not open_:
            return
        position, last = open_[-1]
        versions = {write.tensor: write.version for _, write in open_}
        shown = what or _describe(last)
        writer = Writer(
            id=f"w{len(writers)}", place=place or last.place, what=shown, position=position, versions=versions
        )
        writers.append(writer)
        open_.clear()

    first = find_first_reads(trace)
    for position, event in enumerate(trace.events):
        match event:
            case Write(by="code") if event.version <= first.get(event.tensor, 0):
                continue  # initial values are no versions
            case Write(by="update"):
                if open_ and open_[-1][1].by != "update":
                    finish()
                open_.append((position, event))
            case Write():
                if open_ and (open_[-1][1].by, open_[-1][1].place) != (event.by, event.place):
                    finish()
                open_.append((position, event))
            case Update(optimizer=name, place=place):
                finish(f"{name}.step()", place)
            case _:
                finish()
    finish()
    return tuple(writers)


def find_first_reads(trace: Trace) -> Mapping[int, int]:
    """Return the first version of every tensor that anything read."""
    first: dict[int, int] = {}
    for event in trace.events:
        match event:
            case Forward(versions=versions):
                seen = versions
            case Backward(reads=reads):
                seen = tuple((read.tensor, read.version) for read in reads)
            case _:
                seen = ()
        for tensor, version in seen:
            first[tensor] = min(version, first.get(tensor, version))
    return first


def _describe(write: Write) -> str:
    match write.by:
        case "update":
            return f"{write.writer}.step()"
        case "forward" | "recompute":
            return f"a forward of {write.writer}"
        case "backward":
            return "a hook of the backward"
        case "code":
            return write.writer


def find_cells(trace: Trace, writers: Iterable[Writer]) -> Mapping[int, Cell]:
    """Return the cell of every tensor: those of one model that are always written together are one."""
    histories: dict[int, list[str]] = {each.number: [] for each in trace.tensors}
    for writer in writers:
        for tensor in writer.versions:
            histories[tensor].append(writer.id)
    groups: dict[tuple[str, str], dict[tuple[str, ...], list[Stored]]] = {}
    for each in trace.tensors:
        parts = groups.setdefault((each.model, each.kind), {})
        parts.setdefault(tuple(histories[each.number]), []).append(each)
    cells: dict[int, Cell] = {}
    for (model, _), parts in groups.items():
        for members in parts.values():
            owner = model
            if len(parts) > 1:  # a name for them: what theirs begin with, or the first of them
                paths = [each.name.split(".") for each in members]
                shared = takewhile(lambda each: len(set(each)) == 1, zip(*paths, strict=False))
                owner = ".".join([model, *([each[0] for each in shared] or [members[0].name])])
            cells |= {each.number: Cell(each.kind, (owner,)) for each in members}
    return cells


def find_broken(trace: Trace) -> tuple[Broken, ...]:
    """Return the edges to gradients that the order of a trace breaks."""
    writers = group_writes(trace)
    cells = find_cells(trace, writers)
    by_cell: dict[Cell, list[Writer]] = {}
    for writer in writers:
        for cell in dict.fromkeys(cells[tensor] for tensor in writer.versions):
            by_cell.setdefault(cell, []).append(writer)

    nodes: dict[str, Instruction] = {}
    for writer in writers:
        written = dict.fromkeys(cells[tensor] for tensor in writer.versions)
        writes = tuple(CellWrite(cell=cell, version=by_cell[cell].index(writer) + 1) for cell in written)
        op = f"line {writer.place.line}"
        nodes[writer.id] = Apply(op=op, id=writer.id, label=writer.what, parts=(), writes=writes)
    paths: dict[str, GradientPath] = {}
    gradients: dict[str, Backward] = {}
    stale: dict[str, list[Read]] = {}
    for event in trace.of(Backward):
        name = f"g{event.number}"
        through = _add_reads(nodes, stale, event, cells, by_cell)
        nodes[name] = Gradient(op=name, id=name, label=f"gradient of line {event.place.line}", loss="")
        paths[name] = GradientPath(nodes=through, uses=frozenset())
        gradients[name] = event
    graph = StepGraph(
        mode="train",
        active=(),
        gated=(),
        outputs=(),
        nodes=nodes,
        causality=Causality({}, {}),
        writers={cell: tuple(each.id for each in among) for cell, among in by_cell.items()},
        paths=paths,
    )
    known = {each.id: each for each in writers}
    found: list[Broken] = []
    for edge in find_hazards(graph, TABLES["torch"]).hazards:
        if edge.hazard in (Hazard.BACKWARD_WAR, Hazard.BUFFER_WAR) and edge.cell is not None:
            reads = tuple(read for name in edge.through for read in stale[name])
            made = str(edge.cell._replace(version=edge.cell.version + 1))
            writer, gradient = known[edge.after], gradients[edge.before]
            found.append(Broken(edge=edge, gradient=gradient, writer=writer, cell=made, reads=reads))
    return tuple(found)


def _add_reads(
    nodes: dict[str, Instruction],
    stale: dict[str, list[Read]],
    event: Backward,
    cells: Mapping[int, Cell],
    writers: Mapping[Cell, Sequence[Writer]],
) -> frozenset[str]:
    """Add a node for each line whose forward saved what has been written since; return their names."""
    names: dict[tuple[Place, Cell, int], str] = {}
    for read in (each for each in event.reads if each.now != each.version):
        cell = cells[read.tensor]
        # The version of the cell is how many writers had written the tensor when it had its own.
        histories = (each.versions for each in writers.get(cell, ()))
        version = sum(each.get(read.tensor, math.inf) <= read.version for each in histories)
        name = names.setdefault((read.place, cell, version), f"f{event.number}.{len(names)}")
        where = f"line {read.place.line}" if read.place.file == event.place.file else str(read.place)
        seen = CellRead(cell=cell, version=version, saved=True)
        nodes[name] = Call(
            op=where, id=name, label=where, model=cell.owners[0], arguments=(), outputs=(), reads=(seen,)
        )
        stale.setdefault(name, []).append(read)
    return frozenset(names.values())
