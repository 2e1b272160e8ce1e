"""Where everything of a step's picture stands: one row per line of the plan, one lane per model, one track per value.

Time runs downwards. What outlives an instruction has a lane: the weights of a model, a state, the gradients that an
update has accumulated. Values have tracks on the left of the lanes, from the row that makes them to the last that reads
them; what holds an update back has tracks on the right. Nothing is searched for: the order of the rows is the schedule.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from msgspec import Struct

from compiler.ir.cell import Cell
from compiler.ir.instructions import Instruction
from compiler.ir.instructions.base import find_verdicts
from compiler.ir.program import Function
from compiler.ir.step_graph import Edge, Hazard
from compiler.plan.compiled_step import CompiledStep
from compiler.plan.explain import find_instructions
from compiler.plan.folds import find_hidden
from compiler.plan.formula import Lines, find_lines
from compiler.plan.text import describe_lines, flags_of
from compiler.plan.waits import find_waits

MOST_LANES = 16
"""Of more lanes, those whose rows do not overlap share a column."""
MOST_TRACKS = 16
"""The last track takes what needs more."""

Does: TypeAlias = Literal["writes", "differentiates", "calls", "reads", "back"]
DOES: tuple[Does, ...] = ("writes", "differentiates", "calls", "reads", "back")
"""What a row can do to a lane, the most important first; ``back``: a gradient still needs what a forward read."""


class Storage(NamedTuple):
    """What has a lane: a model, a state, or the window of an update that accumulates."""

    kind: Literal["model", "state", "window"]
    name: str


class Mark(NamedTuple):
    """What a row does to a storage, and the version that it reads or makes: the newest of the storage's cells."""

    storage: Storage
    does: Does
    version: int


class Lane(NamedTuple):
    """The line of a storage: its column, its first and last row, and the rows that make its versions 0, 1, ..."""

    column: int
    first: int
    last: int
    versions: Mapping[int, int]


class ValueEdge(NamedTuple):
    """A value, from the row that makes it to one that reads it, and its track."""

    value: str
    before: int
    after: int
    track: int


class Order(NamedTuple):
    """A row that must run before another, which reads nothing of it, with the kinds of constraints and why.

    Its track is None unless it holds a write back.
    """

    before: int
    after: int
    reasons: tuple[tuple[str, str], ...]
    track: int | None


class Row(Struct, frozen=True, kw_only=True):
    """A line of the plan, with the storage on which it mainly acts."""

    node: str
    """Its name in the graph; the kind of what is not in it."""
    op: str
    kind: str
    text: str
    place: int = -1
    """Its index among the instructions of the function; -1 for the inputs."""
    home: Storage | None = None
    marks: tuple[Mark, ...] = ()
    flags: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    deferred: str = ""
    """Why it is deferred."""
    lines: int = 1
    """How many lines of the plan it shows."""


GAP = Row(node="", op="", kind="gap", text="")
"""A row of nothing, next to a row that only another plan has."""


class Picture(Struct, frozen=True, kw_only=True):
    """A function of a step, laid out."""

    name: str
    rows: tuple[Row, ...]
    lanes: Mapping[Storage, Lane]
    values: tuple[ValueEdge, ...] = ()
    orders: tuple[Order, ...] = ()


def lay_out(plan: CompiledStep, function: Function) -> Picture:
    """Return the picture of a function of a plan."""
    return place_rows(plan, function, list_rows(plan, function))


def place_rows(plan: CompiledStep, function: Function, rows: Sequence[Row]) -> Picture:
    """Return the picture of a function whose rows are those given; there may be gaps between them."""
    # All edges of a value are on one track: the shorter it lives, the nearer to the lanes.
    makers = {value: number for number, row in enumerate(rows) for value in row.makes}
    edges = [(value, makers[value], at) for at, row in enumerate(rows) for value in row.uses if value in makers]
    spans = {value: (before, after) for value, before, after in edges}  # the last reader counts
    tracks = dict(zip(spans, _pack([*spans.values()], MOST_TRACKS), strict=True))
    # The pairs of rows whose order something else than a value asks for.
    graph = plan.graphs[function.name]
    numbers, lines = {row.node: number for number, row in enumerate(rows)}, find_lines(graph)
    pairs: dict[tuple[int, int], list[Edge]] = {}
    for edge in (each for each in graph.edges if each.hazard is not Hazard.DATA):
        before, after = (numbers.get(lines.get(name, name), -1) for name in (edge.before, edge.after))
        if -1 < before != after > -1:
            pairs.setdefault((before, after), []).append(edge)
    waits = {edge for awaited in find_waits(graph).values() for edge in awaited}
    holding = [pair for pair, between in pairs.items() if not waits.isdisjoint(between)]
    held = dict(zip(holding, _pack(holding, MOST_TRACKS), strict=True))
    reasons = {pair: dict.fromkeys((each.hazard.value, each.why) for each in found) for pair, found in pairs.items()}
    return Picture(
        name=function.name,
        rows=tuple(rows),
        lanes=_place_lanes(plan, rows),
        values=tuple(ValueEdge(value, before, after, tracks[value]) for value, before, after in edges),
        orders=tuple(Order(*pair, tuple(whys), held.get(pair)) for pair, whys in reasons.items()),
    )


def list_rows(plan: CompiledStep, function: Function) -> list[Row]:
    """Return the rows of a function of a plan."""
    graph = plan.graphs[function.name]
    lines, names = Lines.of(function.instructions), find_instructions(plan, graph, function.name)
    nodes = {id(instruction): node for node, instruction in names.items()}
    saved: dict[str, list[Mark]] = {}  # by gradient, what it still needs when it runs, and something writes later
    for edge in graph.hazards:
        if edge.hazard is Hazard.BACKWARD_WAR and edge.cell is not None:
            needed = (Mark(owner, "back", edge.cell.version) for owner in _find_storages(edge.cell.cell))
            saved.setdefault(edge.before, []).extend(needed)
    deferred = {each.node: each.text for each in graph.decisions if each.code == "DEFER"}
    rows: list[Row] = []
    for place, each in enumerate(function.instructions):
        if each.has_line and each.kind() != "release":
            node, parts = nodes.get(id(each), each.kind()), lines.find(each)
            found = [*saved.get(node, ()), *(mark for part in parts for mark in _find_marks(part))]
            chief: dict[Storage, Mark] = {}  # the most important mark of every storage, the most important of all first
            for mark in sorted(found, key=lambda mark: (DOES.index(mark.does), -mark.version)):
                chief.setdefault(mark.storage, mark)
            marks = tuple(chief.values())
            made = {value for part in parts for value in part.defines}
            read = (value for part in parts for value in (*part.operands, *find_verdicts(part.commits)))
            row = Row(
                node=node,
                op=each.op,
                kind="return" if each.kind() == "emit" else each.kind(),
                text=lines.write(each),
                place=place,
                home=next((mark.storage for mark in marks if mark.does not in ("reads", "back")), None),
                marks=marks,
                flags=tuple(dict.fromkeys(flag for part in parts for flag in flags_of(part))),
                uses=tuple(dict.fromkeys(value for value in read if value not in made)),
                makes=each.defines,
                deferred=deferred.get(node, ""),
            )
            rows.append(row)
    rows = _fold(plan, function, rows)
    used = {value for row in rows for value in row.uses} - {value for row in rows for value in row.makes}
    given = tuple(each.name for each in plan.program.inputs if each.name in used)
    inputs = [Row(node="inputs", op="", kind="inputs", text=", ".join(given), makes=given)] if given else []
    return [*inputs, *rows]


def _fold(plan: CompiledStep, function: Function, rows: Sequence[Row]) -> list[Row]:
    """Return the rows with one for all iterations that do what the first does."""
    hidden = find_hidden([line for _, line in describe_lines(plan, function)], plan.spec)
    folded: list[Row] = []
    for at, row in enumerate(rows):
        fold = hidden.get(at)
        if fold is None:
            folded.append(row)
        elif fold.first == at:
            inside = rows[fold.first : fold.last + 1]
            written = (mark for each in inside for mark in each.marks if mark.does == "writes")
            newest = {mark.storage: mark for mark in sorted(written, key=lambda mark: mark.version)}
            marks = tuple(newest.values())
            made = tuple(dict.fromkeys(value for each in inside for value in each.makes))
            read = dict.fromkeys(value for each in inside for value in each.uses if value not in made)
            folded.append(
                Row(
                    node=f"{row.node}..",
                    op=row.op,
                    kind="repeat",
                    text=fold.text,
                    place=row.place,
                    home=marks[0].storage if marks else None,
                    marks=marks,
                    uses=tuple(read),
                    makes=made,
                    lines=len(inside),
                )
            )
    return folded


# ---------------------------------------------------------------- lanes


def _find_storages(cell: Cell) -> tuple[Storage, ...]:
    """Return in whose lanes the versions of a cell are shown: those of optimizers and buffers in none."""
    match cell.kind:
        case "optimizer" | "buffers":
            return ()
        case "state" | "window":
            return (Storage(cell.kind, cell.owners[0]),)
        case "params" | "tied":
            return tuple(Storage("model", owner) for owner in cell.owners)


def _find_marks(instruction: Instruction) -> Iterator[Mark]:
    """Yield what an instruction does to storages."""
    yield from (Mark(owner, "writes", at.version) for at in instruction.writes for owner in _find_storages(at.cell))
    yield from (Mark(owner, "reads", at.version) for at in instruction.reads for owner in _find_storages(at.cell))
    if instruction.derivative is not None:
        yield from (Mark(Storage("model", model), "differentiates", 0) for model in instruction.derivative.models)
    if instruction.called is not None:
        model = Storage("model", instruction.called)
        own = (at.version for at in instruction.reads if model in _find_storages(at.cell))
        yield Mark(model, "calls", max(own, default=0))


def _place_lanes(plan: CompiledStep, rows: Sequence[Row]) -> Mapping[Storage, Lane]:
    """Return the lanes: models as they are declared, then states and windows; of many, short ones share columns."""
    touched: dict[Storage, list[tuple[int, Mark]]] = {}
    for number, row in enumerate(rows):
        for mark in row.marks:
            touched.setdefault(mark.storage, []).append((number, mark))
    models = (Storage("model", model.name) for model in plan.program.models)
    storages = [*dict.fromkeys((*(each for each in models if each in touched), *touched))]
    spans = [(0, len(rows) - 1)] * len(storages)
    columns = list(range(len(storages)))
    if len(storages) > MOST_LANES:
        spans = [(touched[each][0][0], touched[each][-1][0]) for each in storages]
        columns = _pack([(first, last + 1) for first, last in spans], len(spans))
    lanes: dict[Storage, Lane] = {}
    for storage, column, (first, last) in zip(storages, columns, spans, strict=True):
        versions = {0: first} | {mark.version: at for at, mark in touched[storage] if mark.does == "writes"}
        lanes[storage] = Lane(column=column, first=first, last=last, versions=versions)
    return lanes


Span: TypeAlias = tuple[int, int]


def _pack(spans: Sequence[Span], most: int) -> list[int]:
    """Return a track for every span, so that no two of a track overlap; they may touch. The last takes all the rest.

    The shortest are placed first, each on the first track that is free.
    """
    tracks: list[list[Span]] = []
    found = [0] * len(spans)
    for each in sorted(range(len(spans)), key=lambda each: (spans[each][1] - spans[each][0], spans[each])):
        fitting = (at for at, taken in enumerate(tracks) if at == most - 1 or _is_free(taken, spans[each]))
        found[each] = next(fitting, len(tracks))
        if found[each] == len(tracks):
            tracks.append([])
        insort(tracks[found[each]], spans[each])
    return found


def _is_free(taken: Sequence[Span], span: Span) -> bool:
    """Return whether a sorted track has nothing that overlaps a span."""
    at = bisect_left(taken, span)
    return (at == 0 or taken[at - 1][1] <= span[0]) and (at == len(taken) or taken[at][0] >= span[1])
