"""Where everything of a step's picture stands: one row per line of the plan, one lane per model, one track per value.

Time runs downwards. What outlives an instruction has a lane: the weights of a model, a state, the gradients that an
update has accumulated. Values have tracks on the left of the lanes, from the row that makes them to the last that reads
them; what holds an update back has tracks on the right. Nothing is searched for: the order of the rows is the schedule.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from compiler.ir.cell import Cell
from compiler.ir.instructions import Instruction
from compiler.ir.instructions.base import find_verdicts
from compiler.ir.program import Function
from compiler.ir.step_graph import Edge, Hazard, StepGraph
from compiler.passes.schedule import find_chains
from compiler.plan.compiled_step import CompiledStep
from compiler.plan.diagram import find_lines
from compiler.plan.explain import find_instructions
from compiler.plan.formula import Lines
from compiler.plan.text import flags_of

VALUES = -1
"""The lane of what acts on no storage."""
MOST_LANES = 16
"""Of more lanes, those whose rows do not overlap share a column."""
MOST_TRACKS = 24
"""More tracks than these are one, the outermost."""

Does = Literal["writes", "differentiates", "calls", "reads", "back"]
"""What a row does to a lane; ``back``: its gradient runs back through a forward and still needs what that read."""
DOES: tuple[Does, ...] = ("writes", "differentiates", "calls", "reads", "back")


class Storage(NamedTuple):
    """What has a lane: a model, a state, or the window of an update that accumulates."""

    kind: Literal["model", "state", "window"]
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """The line of a storage: its column, and its first and last row."""

    storage: Storage
    column: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What a row does to a lane, and the version that it sees or makes: the newest one of the cells of the lane."""

    lane: int
    does: Does
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of the plan, with the lane in which it mainly acts."""

    node: str
    """Its name in the graph; the kind of what is not in it."""
    op: str
    kind: str
    text: str
    home: int = VALUES
    place: int = -1
    """Its index among the instructions of the function; -1 for the inputs."""
    marks: tuple[Mark, ...] = ()
    flags: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A lane at one version: from the row that makes it to that which makes the next."""

    lane: int
    version: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueEdge:
    """A value, from the row that makes it to one that reads it."""

    value: str
    before: int
    after: int
    track: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A row that must run before another though it gives it nothing; ``holds``: an update is deferred by it."""

    before: int
    after: int
    reasons: tuple[tuple[str, str], ...]
    """The kind of each constraint, and why there is one."""
    holds: bool
    track: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A function of a step, laid out."""

    function: Function
    rows: tuple[Row, ...]
    lanes: tuple[Lane, ...]
    segments: tuple[Segment, ...]
    values: tuple[ValueEdge, ...]
    orders: tuple[Order, ...]
    deferred: Mapping[str, str]
    """Node -> why it is deferred."""

    @property
    def tracks(self) -> int:
        """Return how many tracks the values take."""
        return 1 + max((edge.track for edge in self.values), default=-1)

    @property
    def columns(self) -> int:
        """Return how many columns the lanes take."""
        return 1 + max((lane.column for lane in self.lanes), default=-1)

    @property
    def order_tracks(self) -> int:
        """Return how many tracks the orders take that hold something back."""
        return 1 + max((each.track for each in self.orders if each.holds), default=-1)


def lay_out(plan: CompiledStep, function: Function) -> Picture:
    """Return the picture of a function of a plan."""
    graph = plan.graphs[function.name]
    lines, names = Lines.of(function.instructions), find_instructions(plan, graph, function.name)
    nodes = {id(instruction): node for node, instruction in names.items()}
    inner = {place: lines.find(each) for place, each in enumerate(function.instructions) if _has_row(each)}
    storages = _sort_storages(plan, (part for parts in inner.values() for part in parts))
    lane_of = {storage: number for number, storage in enumerate(storages)}
    saved = _find_saved(graph)
    rows: list[Row] = []
    for place, parts in inner.items():
        each = parts[0]
        node = nodes.get(id(each), each.kind())
        made = {value for part in parts for value in part.defines}
        marks = tuple(_find_marks(parts, saved.get(node, ()), lane_of))
        row = Row(
            node=node,
            op=each.op,
            kind="return" if each.kind() == "emit" else each.kind(),
            text=lines.write(each),
            home=next((mark.lane for mark in marks if mark.does in ("writes", "differentiates", "calls")), VALUES),
            place=place,
            marks=marks,
            flags=tuple(dict.fromkeys(flag for part in parts for flag in flags_of(part))),
            uses=tuple(dict.fromkeys(value for part in parts for value in _find_used(part) if value not in made)),
            makes=each.defines,
        )
        rows.append(row)
    rows = [*_make_inputs(plan, rows), *rows]
    lanes = _place_lanes(storages, rows)
    return Picture(
        function=function,
        rows=tuple(rows),
        lanes=lanes,
        segments=tuple(_find_segments(lanes, rows)),
        values=_place_values(tuple(_join_values(rows))),
        orders=_place_orders(tuple(_find_orders(graph, rows))),
        deferred={each.node: each.text for each in graph.decisions if each.code == "DEFER"},
    )


def _has_row(instruction: Instruction) -> bool:
    return instruction.has_line and instruction.kind() != "release"


def _find_used(instruction: Instruction) -> tuple[str, ...]:
    """Return the values that an instruction reads, and the verdicts under which it takes place."""
    return (*instruction.operands, *find_verdicts(instruction.commits))


def _make_inputs(plan: CompiledStep, rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the row of the inputs that the others read."""
    used = {value for row in rows for value in row.uses} - {value for row in rows for value in row.makes}
    names = tuple(each.name for each in plan.program.inputs if each.name in used)
    if names:
        yield Row(node="inputs", op="", kind="inputs", text=", ".join(names), makes=names)


# ---------------------------------------------------------------- lanes


def _find_storages(cell: Cell) -> tuple[Storage, ...]:
    """Return whose lanes a cell is in; those of optimizers are in none."""
    match cell.kind:
        case "optimizer":
            return ()
        case "state" | "window":
            return (Storage(cell.kind, cell.owners[0]),)
        case _:
            return tuple(Storage("model", owner) for owner in cell.owners)


def _find_touched(instruction: Instruction) -> list[tuple[Storage, Does, int]]:
    """Return what an instruction does to which storages; versions count those of weights."""
    found: list[tuple[Storage, Does, int]] = []
    writes, reads = ([at for at in ats if at.cell.kind != "buffers"] for ats in (instruction.writes, instruction.reads))
    found += [(storage, "writes", at.version) for at in writes for storage in _find_storages(at.cell)]
    if instruction.derivative is not None:
        found += [(Storage("model", model), "differentiates", 0) for model in instruction.derivative.models]
    if instruction.called is not None:
        model = Storage("model", instruction.called)
        version = max((at.version for at in reads if model in _find_storages(at.cell)), default=0)
        found.append((model, "calls", version))
    found += [(storage, "reads", at.version) for at in reads for storage in _find_storages(at.cell)]
    return found


def _sort_storages(plan: CompiledStep, instructions: Iterable[Instruction]) -> tuple[Storage, ...]:
    """Return what has a lane: models as they are declared, then states and windows as they are met."""
    found = dict.fromkeys(storage for each in instructions for storage, _, _ in _find_touched(each))
    models = (Storage("model", model.name) for model in plan.program.models)
    return tuple(dict.fromkeys((*(each for each in models if each in found), *found)))


def _find_saved(graph: StepGraph) -> Mapping[str, Collection[tuple[Cell, int]]]:
    """Return by gradient the cells that it still needs when it runs, as far as something writes them later."""
    found: dict[str, dict[tuple[Cell, int], None]] = {}
    for edge in graph.hazards:
        if edge.hazard is Hazard.BACKWARD_WAR and edge.cell is not None:
            found.setdefault(edge.before, {})[edge.cell.cell, edge.cell.version] = None
    return found


def _find_marks(
    parts: Sequence[Instruction], saved: Iterable[tuple[Cell, int]], lane_of: Mapping[Storage, int]
) -> Iterator[Mark]:
    """Yield one mark for every lane that a row touches: the most important thing that it does there."""
    touched = [each for part in parts for each in _find_touched(part)]
    touched += [(storage, "back", version) for cell, version in saved for storage in _find_storages(cell)]
    for does in DOES:
        for storage in dict.fromkeys(storage for storage, how, _ in touched if how == does):
            first = next(how for how in DOES if any(each[:2] == (storage, how) for each in touched))
            if first == does:
                version = max(version for where, how, version in touched if (where, how) == (storage, does))
                yield Mark(lane=lane_of[storage], does=does, version=version)


def _place_lanes(storages: Sequence[Storage], rows: Sequence[Row]) -> tuple[Lane, ...]:
    """Return a column for every lane, from first to last row; of many lanes, short ones share columns."""
    if len(storages) <= MOST_LANES:
        last = len(rows) - 1
        return tuple(Lane(storage=each, column=at, first=0, last=last) for at, each in enumerate(storages))
    touched: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        for mark in row.marks:
            touched.setdefault(mark.lane, []).append(number)
    spans = [(numbers[0], numbers[-1] + 1) for _, numbers in sorted(touched.items())]
    columns = _pack(spans, sorted(range(len(spans)), key=lambda lane: spans[lane]), len(spans))
    return tuple(
        Lane(storage=storage, column=column, first=first, last=last - 1)
        for storage, column, (first, last) in zip(storages, columns, spans, strict=True)
    )


def _find_segments(lanes: Sequence[Lane], rows: Sequence[Row]) -> Iterator[Segment]:
    """Yield the versions of every lane."""
    made: dict[int, list[tuple[int, int]]] = {lane: [] for lane in range(len(lanes))}
    for number, row in enumerate(rows):
        for mark in row.marks:
            if mark.does == "writes":
                made[mark.lane].append((number, mark.version))
    for lane, changes in made.items():
        begins = [(lanes[lane].first, 0), *changes]
        ends = [*(number for number, _ in changes), lanes[lane].last]
        for (first, version), last in zip(begins, ends, strict=True):
            yield Segment(lane=lane, version=version, first=first, last=last)


# ---------------------------------------------------------------- edges


def _join_values(rows: Sequence[Row]) -> Iterator[tuple[str, int, int]]:
    """Yield every value with the row that makes it and each that reads it."""
    makers = {value: number for number, row in enumerate(rows) for value in row.makes}
    for number, row in enumerate(rows):
        yield from ((value, makers[value], number) for value in row.uses if value in makers)


def _place_values(edges: Sequence[tuple[str, int, int]]) -> tuple[ValueEdge, ...]:
    """Return the edges of values, all of one value on one track: the shorter it lives, the nearer to the lanes."""
    spans: dict[str, tuple[int, int]] = {}
    for value, before, after in edges:
        spans[value] = (before, max(after, spans.get(value, (0, 0))[1]))
    listed = [*spans.values()]
    by_length = sorted(range(len(listed)), key=lambda each: (listed[each][1] - listed[each][0], listed[each]))
    tracks = dict(zip(spans, _pack(listed, by_length, MOST_TRACKS), strict=True))
    return tuple(ValueEdge(value=value, before=a, after=b, track=tracks[value]) for value, a, b in edges)


def _find_orders(graph: StepGraph, rows: Sequence[Row]) -> Iterator[Order]:
    """Yield the pairs of rows whose order something other than a value asks for."""
    numbers = {row.node: number for number, row in enumerate(rows)}
    lines, chains = find_lines(graph), find_chains(graph)
    late = {why.text for each in graph.decisions if each.code == "DEFER" for why in each.because}
    # What keeps a transform of its gradients waiting, keeps the update waiting.
    held = {name: update for update, chain in chains.items() for name in (update, *chain.transforms)}
    pairs: dict[tuple[int, int], list[Edge]] = {}
    for edge in (each for each in graph.edges if each.hazard is not Hazard.DATA):
        before, after = (numbers.get(lines.get(name, name), -1) for name in (edge.before, edge.after))
        if -1 < before != after > -1:
            pairs.setdefault((before, after), []).append(edge)
    deferred = {each.node for each in graph.decisions if each.code == "DEFER"}
    for (before, after), edges in pairs.items():
        yield Order(
            before=before,
            after=after,
            reasons=tuple(dict.fromkeys((edge.hazard.value, edge.why) for edge in edges)),
            holds=any(held.get(edge.after) in deferred and edge.why in late for edge in edges),
        )


def _place_orders(orders: Sequence[Order]) -> tuple[Order, ...]:
    """Return orders with tracks for those that hold something back; the others are shown for one row at a time."""
    holding = [each for each in orders if each.holds]
    spans = [(each.before, each.after) for each in holding]
    by_length = sorted(range(len(spans)), key=lambda each: (spans[each][1] - spans[each][0], spans[each]))
    tracks = iter(_pack(spans, by_length, MOST_TRACKS))
    return tuple(replace(each, track=next(tracks)) if each.holds else each for each in orders)


def _pack(spans: Sequence[tuple[int, int]], order: Sequence[int], most: int) -> list[int]:
    """Return a track for every span, so that no two of a track overlap; they may touch. The last takes all the rest.

    Spans are placed in the given order, each on the first track that is free.
    """
    tracks: list[list[tuple[int, int]]] = []
    found = [0] * len(spans)
    for each in order:
        first, last = spans[each]
        number = next(
            (at for at, taken in enumerate(tracks) if at == most - 1 or _is_free(taken, first, last)), len(tracks)
        )
        if number == len(tracks):
            tracks.append([])
        insort(tracks[number], (first, last))
        found[each] = number
    return found


def _is_free(taken: Sequence[tuple[int, int]], first: int, last: int) -> bool:
    """Return whether nothing in a sorted track is between two rows."""
    at = bisect_left(taken, (first, last))
    return (at == 0 or taken[at - 1][1] <= first) and (at == len(taken) or taken[at][0] >= last)
