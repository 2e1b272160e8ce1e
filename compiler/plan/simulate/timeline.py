"""A function of a step as a timeline: one stream that computes, and one that sends, as the plan orders them.

A message starts at the line that starts it, or when the network is free; the line that waits for it waits until it is
there. What FSDP2 gathers for a layer starts when the layer before it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, inf, prod
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from compiler.batch.shards import SCATTER
from compiler.ir.instructions import Accumulate, Apply, Blend, Evaluate, Forward, Gradient, Random, Transform
from compiler.ir.instructions.start import ROWS, Start
from compiler.ir.program import Function
from compiler.ir.step_graph import GradientPath
from compiler.plan.compiled_step import CompiledStep
from compiler.plan.messages import NUMBER, Message, count_gradients
from compiler.plan.simulate.cluster import Cluster, Duration, time_collective
from compiler.plan.simulate.work import (
    Work,
    add_up,
    count_slots,
    find_layer_works,
    measure_evaluation,
)
from graphspec.declare.options import BATCH

Rows: TypeAlias = Literal["own", "part", "whole"]
"""On which rows a line works: those of its process, a micro-batch of these, or those of all processes."""


class Segment(Struct, frozen=True, kw_only=True):
    """A part of a line: what it computes, what is gathered for it, and the gradients that it completes, in bytes."""

    work: Work = Work()
    kernels: int = 1
    gathered: int = 0
    given: int = 0


class Line(Struct, frozen=True, kw_only=True):
    """An instruction as the timeline sees it."""

    id: str
    label: str
    rows: Rows
    segments: tuple[Segment, ...]
    is_forward: bool = False
    is_shared: bool = False
    """Each process does its part of it, on its shards."""
    scattered: int = 0
    """The bytes of a gradient set that it scatters, while everything waits."""
    sends: str = ""
    """The message whose gradients leave while it runs, in buckets."""
    awaits: str = ""
    """The message that it waits for."""

    @property
    def work(self) -> Work:
        """Return all that it computes."""
        return add_up(each.work for each in self.segments)

    @property
    def kernels(self) -> int:
        """Return how many pieces of work a device is given."""
        return sum(each.kernels for each in self.segments)


class Timeline(Struct, frozen=True, kw_only=True):
    """The lines of a function."""

    lines: tuple[Line, ...]
    is_counted_first: bool
    """The rows of each process must be known before the first of them."""


class Speed(Struct, frozen=True, kw_only=True):
    """How fast one of some processes computes, and the rows that it has."""

    processes: int
    sizes: Mapping[Rows, Mapping[str, int]]
    """The free dimensions, by the rows that are meant."""
    per_operation: float
    per_kernel: float
    """Seconds that a kernel takes for any rows; where there are any, nothing else does not depend on rows."""
    slowdown: float = 1.0
    """How many processes share a core."""

    def time(self, segment: Segment, line: Line) -> tuple[float, float]:
        """Return the seconds of a segment: those that depend on its rows, and the rest."""
        sizes = self.sizes[line.rows]
        by_rows = segment.work.by_rows.count(sizes)
        fixed = (segment.work.count(sizes) - by_rows) / (self.processes if line.is_shared else 1)
        rest = segment.kernels * self.per_kernel if self.per_kernel else fixed * self.per_operation
        return self.slowdown * by_rows * self.per_operation, self.slowdown * rest


class Passage(Struct, frozen=True, kw_only=True):
    """How the time of a function passes on one process, in seconds."""

    by_rows: float
    """What is computed on rows."""
    fixed: float
    """What is computed for any rows: optimizers, the work around kernels."""
    waits: Mapping[str, Duration]
    """By message, how long it is waited for: for its hops, and for its bytes."""
    sent: float
    """The bytes that it sends, at least."""


GATHERED = "gathered weights"
"""The name of what FSDP2 sends."""
COUNTS, BUFFERS = "rows", "buffers"
"""The names of messages that have no line."""


def find_timeline(plan: CompiledStep, function: Function) -> Timeline:
    """Return the timeline of a function, with sizes that are free."""
    lines = tuple(_Lines(plan=plan, function=function).find())
    return Timeline(lines=lines, is_counted_first=any(BATCH in each.sizes for each in function.instructions))


class _Lines(Struct, frozen=True, kw_only=True):
    """How the instructions of a function become lines."""

    plan: CompiledStep
    function: Function

    def find(self) -> Iterator[Line]:
        """Yield a line for every instruction that has one."""
        program, gathered = self.plan.program, set[str]()
        for node in self.function.instructions:
            if not node.has_line and not isinstance(node, Evaluate):
                continue
            rows: Rows = "part" if node.micro_batch else "own"
            segments, is_shared, scattered, sends = (Segment(),), False, 0, ""
            match node:
                case Forward():
                    # weights that stay gathered are so from their first forward on
                    is_held = not program.is_sharded or (node.kept and node.model in gathered)
                    gathered.add(node.model)
                    layers = find_layer_works(self.plan, node)
                    width = 0 if is_held else NUMBER
                    found = (
                        Segment(work=each.forward, kernels=each.kernels, gathered=width * each.parameters)
                        for each in layers
                    )
                    segments = tuple(found) or segments
                case Evaluate() | Random():
                    rows = rows if node.is_replica or node.micro_batch else "whole"
                    segments = (Segment(work=measure_evaluation(self.plan, node), kernels=node.has_line),)
                case Gradient():
                    segments, sends = tuple(self._differentiate(node)), self._find_sending(node)
                case Transform():
                    is_shared = node.is_sharded
                    segments = (self._touch(node.models, 1),)
                    if node.function.name == SCATTER:
                        scattered = count_gradients(node.models, program) or 0
                case Apply():
                    is_shared = program.is_sharded
                    segments = (Segment(work=add_up(self._step(node)), kernels=len(node.parts)),)
                case Accumulate():
                    segments = (self._touch(node.models, 2),)
                case Blend():
                    is_shared = program.is_sharded
                    segments = (self._touch((node.source,), 3),)
                case _:
                    segments = (Segment(kernels=int(node.kind() not in ("release", "start", "emit"))),)
            yield Line(
                id=node.id,
                label=node.label,
                rows=rows,
                segments=segments,
                is_forward=isinstance(node, Forward),
                is_shared=is_shared,
                scattered=scattered,
                sends=sends,
                awaits=COUNTS if node.message == ROWS else node.message,
            )

    def _touch(self, models: Sequence[str], times: int) -> Segment:
        """Return a segment that does something with every parameter of models."""
        return Segment(work=Work(((float(times), (self._count(models),)),)))

    def _count(self, models: Sequence[str]) -> int:
        return sum(prod(each.shape) for name in models for each in self.plan.program.model(name).parameters)

    def _step(self, node: Apply) -> Iterator[Work]:
        """Yield what optimizers do: two operations for each parameter, and four for each slot."""
        optimizers = {each.name: each for each in self.plan.program.optimizers}
        for part in node.parts:
            tensors = [each for name in part.models for each in self.plan.program.model(name).parameters]
            slots = sum(count_slots(optimizers[part.optimizer], each.shape) for each in tensors)
            yield Work(((1.0, (2 * self._count(part.models) + 4 * slots,)),))

    def _find_sending(self, node: Gradient) -> str:
        """Return the message whose first buckets leave while a gradient is taken, if there is one."""
        parallel = self.plan.program.parallel
        is_changed = node.scaled or node.rows or node.create_graph or node.weights is not None
        if parallel is None or parallel.bucket_mb is None or is_changed:
            return ""
        starts = (each for each in self.function.instructions if isinstance(each, Start))
        found = (each.output for each in starts if any(part.value == node.output for part in each.parts))
        return next(found, "")

    def _differentiate(self, node: Gradient) -> Iterator[Segment]:
        """Yield the segments of a gradient: back from the loss, the last layer of the last forward first.

        A gradient on the path is differentiated again, which takes each of its products twice.
        """
        graph = self.plan.graphs[self.function.name]
        path = graph.paths.get(node.id, GradientPath(nodes=frozenset(), uses=frozenset()))
        reached = [each for each in self.function.instructions if each.id in path.nodes]
        rest = [each for each in reached if isinstance(each, Evaluate)]
        yield Segment(work=add_up(measure_evaluation(self.plan, each) for each in rest), kernels=len(rest))
        forwards = [each for each in reached if isinstance(each, Forward)]
        firsts = {each.model: each.id for each in reversed(forwards)}
        for each in reversed(reached):
            if isinstance(each, Gradient):
                inner = [*self._differentiate(each)]
                work = add_up(part.work for part in inner).scale(2)
                yield Segment(work=work, kernels=2 * sum(part.kernels for part in inner))
            elif isinstance(each, Forward):
                yield from self._pass_back(node, each, path, is_first=firsts[each.model] == each.id)

    def _pass_back(self, node: Gradient, forward: Forward, path: GradientPath, *, is_first: bool) -> Iterator[Segment]:
        """Yield the segments of a gradient through a forward; ``is_first``: it comes to no other of this model."""
        weights = None if forward.weights is None else forward.weights.name
        has_weights = forward.model in node.derivative.models if weights is None else (weights, forward.id) in path.uses
        again = forward.checkpoint or any(each.model == forward.model for each in node.recomputed)
        is_gathered = self.plan.program.is_sharded and not forward.kept
        carried = any((each, forward.id) in path.uses for each in forward.operands if each != weights)
        segments: list[Segment] = []
        for layer in find_layer_works(self.plan, forward):
            work = layer.backward(inputs=carried, weights=has_weights)
            carried = carried or (has_weights and layer.parameters > 0)
            segments.append(
                Segment(
                    work=work + layer.forward if again else work,
                    kernels=layer.kernels * (2 + again),
                    gathered=NUMBER * layer.parameters if is_gathered else 0,
                    given=NUMBER * layer.parameters if has_weights and is_first else 0,
                )
            )
        yield from reversed(segments)


class _Clock(Struct, frozen=True, kw_only=True):
    """A moment of a process: when its two streams are free, what is on its way, and what was waited for."""

    cluster: Cluster
    processes: int
    bucket: float
    """The bytes from which on a bucket leaves."""
    now: float = 0.0
    free: float = 0.0
    """When the network has sent what it was given."""
    ahead: float = 0.0
    """From when on the next layer may be gathered."""
    due: Mapping[str, tuple[float, Duration]] = {}
    """Message -> when it is there, and how long it takes."""
    filling: Mapping[str, float] = {}
    """Message -> the bytes of its bucket."""
    gone: Mapping[str, float] = {}
    """Message -> the bytes that have left before it."""
    waits: Mapping[str, Duration] = {}
    sent: float = 0.0

    def begin(self) -> _Clock:
        """Return it at a line, which gathers its first layer at once."""
        return replace(self, ahead=self.now)

    def compute(self, seconds: float) -> _Clock:
        """Return it after some computing, meanwhile the next layer may be gathered."""
        return replace(self, ahead=self.now, now=self.now + seconds)

    def gather(self, size: int) -> _Clock:
        """Return it once the weights of a layer are there, of which each process has its part."""
        if not size or self.processes == 1:
            return self
        taken = time_collective("gather", size / self.processes, self.processes, self.cluster)
        there = max(self.free, self.ahead) + taken.total
        sent = self.sent + size * (1 - 1 / self.processes)
        return replace(self, free=there, sent=sent)._await(GATHERED, there, taken)

    def scatter(self, size: int, label: str) -> _Clock:
        """Return it once a gradient set is scattered, which is waited for at once."""
        if self.processes == 1:
            return self
        taken = time_collective("gather", size / self.processes, self.processes, self.cluster)
        there = max(self.free, self.now) + taken.total
        sent = self.sent + size * (1 - 1 / self.processes)
        return replace(self, free=there, sent=sent)._await(label, there, taken)

    def give(self, message: Message, size: int) -> _Clock:
        """Return it with more gradients in the bucket of a message, which leaves once it is full."""
        filled = self.filling.get(message.name, 0.0) + size
        if filled < self.bucket:
            return replace(self, filling={**self.filling, message.name: filled})
        gone = {**self.gone, message.name: self.gone.get(message.name, 0.0) + filled}
        return replace(self, filling={**self.filling, message.name: 0.0}, gone=gone)._send(message, filled)

    def start(self, message: Message) -> _Clock:
        """Return it with a message, or what is left of it, on its way."""
        left = max((message.size or 0) - self.gone.get(message.name, 0.0), 0.0)
        is_cut = isinstance(message.start, Start) and message.start.has_sets
        count = max(ceil(left / self.bucket), 1) if is_cut else 1
        clock = self
        for _ in range(count):
            clock = clock._send(message, left / count)
        return clock

    def wait(self, name: str) -> _Clock:
        """Return it once a message is there; at once where there is none of that name."""
        return self._await(name, *self.due[name]) if name in self.due else self

    def _send(self, message: Message, size: float) -> _Clock:
        if self.processes == 1:
            return self
        taken = time_collective(message.collective, size, self.processes, self.cluster)
        there = max(self.free, self.now) + taken.total
        _, before = self.due.get(message.name, (0.0, Duration()))
        return replace(self, free=there, due={**self.due, message.name: (there, before + taken)})

    def _await(self, name: str, there: float, taken: Duration) -> _Clock:
        """Return it at the moment that something is there; what is waited counts as its hops and bytes do."""
        if there <= self.now:
            return self
        late = there - self.now  # the message was sent late where its own time is none
        waited = taken.scale(late / taken.total) if taken.total else Duration(transfer=late)
        waits = {**self.waits, name: self.waits.get(name, Duration()) + waited}
        return replace(self, now=there, waits=waits)


def walk(
    timeline: Timeline, messages: Sequence[Message], cluster: Cluster, speed: Speed, bucket: float | None
) -> Passage:
    """Return how the time of a function passes, given its messages among so many processes.

    ``bucket``: the bytes of the parts in which gradients travel, None where a set is one.
    """
    clock = _Clock(cluster=cluster, processes=speed.processes, bucket=bucket or inf)
    by_rows = fixed = 0.0
    named = {each.name: each for each in messages}
    starts = {each.start.id: each for each in messages if each.start is not None}
    if COUNTS in named:
        clock = clock.start(named[COUNTS])
        clock = clock.wait(COUNTS) if timeline.is_counted_first else clock
    for line in timeline.lines:
        clock = clock.wait(line.awaits).begin()
        for segment in line.segments:
            clock = clock.gather(segment.gathered)
            variable, rest = speed.time(segment, line)
            by_rows, fixed = by_rows + variable, fixed + rest
            clock = clock.compute(variable + rest)
            clock = clock.give(named[line.sends], segment.given) if line.sends else clock
        clock = clock.scatter(line.scattered, line.label) if line.scattered else clock
        clock = clock.start(starts[line.id]) if line.id in starts else clock
    for each in messages:
        clock = clock.start(each).wait(each.name) if each.name == BUFFERS else clock
    sent = sum(each.count_sent(speed.processes) or 0 for each in messages) + clock.sent
    return Passage(by_rows=by_rows, fixed=fixed, waits=clock.waits, sent=sent)
