"""What replicas tell each other in a step: the messages of a function, their sizes, and what runs meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import ceil, inf, prod
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

from compiler.facts.parameters import find_matching
from compiler.ir.instructions import Instruction, Sent, Start
from compiler.ir.instructions.start import ROWS
from compiler.ir.program import Compression, Function, Program
from compiler.ir.value import Json, Object
from compiler.plan.compiled_step import CompiledStep
from compiler.types.dimension import UNKNOWN, evaluate
from compiler.types.dtype import FLOATING
from graphspec.declare.options import BATCH

BYTES = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2, "bool": 1, "uint8": 1}
"""The bytes of a number; models have float32 unless the caller builds them in another type."""
NUMBER, COUNT = BYTES["float32"], BYTES["int64"]
"""The bytes of what has no rows, such as a loss, and of a count of rows."""

COMBINING: tuple[Literal["sum", "broadcast"], ...] = ("sum", "broadcast")
"""How buffers become equal."""

NOT_COUNTED = "weights that FSDP2 gathers and gradients that are scattered (`scatter_set`)"
"""What processes with shards send besides: no message of the plan."""

ROWS_SAVED = {"torch": ", which `stepgraph run` and `step(batch, rows=N)` save"}
"""By backend, who saves the message with the numbers of rows: on others it is always sent."""

NO_SIZES: Mapping[str, int] = MappingProxyType({})


class Message(Struct, frozen=True, kw_only=True):
    """One message of a step, as every process sends it."""

    name: str
    collective: Literal["sum", "gather", "broadcast"]
    values: tuple[str, ...]
    how: str = ""
    """How a gradient set is compressed that is sent in part."""
    size: int | None
    """The bytes that a process has of it; None where a class or the spec leaves that open."""
    start: Instruction | None = None
    end: Instruction | None = None
    """Its instruction, and the first that waits for it; None of what is no instruction: counts of rows, buffers."""
    meanwhile: tuple[Instruction, ...] = ()
    """The forwards and gradients that run before anything waits for it."""

    def count_sent(self, processes: int) -> int | None:
        """Return the bytes that a process has to send at least, on average over all: a ring sends as much.

        A sum of n bytes takes 2(k - 1)/k n, rows of n bytes from each (k - 1) n, the n bytes of the first (k - 1)/k n.
        """
        if self.size is None:
            return None
        times = {"sum": 2 / processes, "gather": 1, "broadcast": 1 / processes}[self.collective]
        return ceil(times * (processes - 1) * self.size)


def find_messages(
    plan: CompiledStep, function: Function, processes: int, sizes: Mapping[str, int] = NO_SIZES
) -> tuple[Message, ...]:
    """Return the messages of a function in the order in which they start; ``sizes``: free dimensions besides batch."""
    program, found = plan.program, list[Message]()
    if any(each.is_replica for each in function.instructions):
        # a step that draws for the whole batch, or whose windows count rows, waits at once
        is_awaited = any(BATCH in each.sizes for each in function.instructions)
        waiting = (at for at, each in enumerate(function.instructions) if each.message == ROWS)
        end = 0 if is_awaited else next(waiting, 0)
        works = [each for each in function.instructions[:end] if each.called is not None or each.derivative is not None]
        found.append(Message(name="rows", collective="gather", values=(BATCH,), size=COUNT, meanwhile=tuple(works)))
    for at, start in enumerate(function.instructions):
        if isinstance(start, Start):
            rest = function.instructions[at + 1 :]
            end = next(place for place, each in enumerate(rest) if each.message == start.output)
            rows = {} if plan.pace.batch is None else {BATCH: ceil(plan.pace.batch / processes)}
            parts = [
                _find_size(part, plan, {**sizes, **rows}, is_number=start.collective != "gather")
                for part in start.parts
            ]
            works = (each for each in rest[:end] if each.called is not None or each.derivative is not None)
            how = program.parallel.compress if program.parallel is not None and start.collective == "compress" else None
            is_added = start.collective == "sum" or (how is not None and how.kind == "powersgd")
            message = Message(
                name=start.output,
                collective="sum" if is_added else "gather",
                how="" if how is None else how.kind,
                values=tuple(whole for part in start.parts for whole in part.wholes),
                size=_add(parts),
                start=start,
                end=rest[end],
                meanwhile=tuple(works),
            )
            found.append(message)
    parallel, written = program.parallel, program.find_written_buffers(function)
    if parallel is not None and parallel.buffers != "local" and written:
        found.extend(_share_buffers(parallel.buffers, written, program))
    return tuple(found)


def _share_buffers(how: str, models: tuple[str, ...], program: Program) -> Iterator[Message]:
    """Yield the messages after which all processes have the same buffers: of whole numbers there is no mean."""
    declared = [program.model(name) for name in models]
    if any(model.kind == "class" for model in declared):
        yield Message(name="buffers", collective="sum" if how == "mean" else "broadcast", values=models, size=None)
        return
    sizes = {"sum": 0, "broadcast": 0}
    for each in (each for model in declared for each in model.buffers):
        is_averaged = how == "mean" and each.dtype in FLOATING
        sizes["sum" if is_averaged else "broadcast"] += prod(each.shape) * BYTES[each.dtype]
    yield from (
        Message(name="buffers", collective=way, values=models, size=sizes[way]) for way in COMBINING if sizes[way]
    )


def describe_messages(plan: CompiledStep, mode: str, processes: int) -> Iterator[str]:
    """Yield what is communicated in each function of a mode, a sentence for each message, and the sum."""
    functions, parallel = plan.program.mode(mode).functions, plan.program.parallel
    bucket = None if parallel is None else parallel.bucket_mb
    rows = f"the number of rows of each{ROWS_SAVED.get(plan.program.backend, '')}"
    for function in functions:
        lines: dict[str, int] = {}
        for each in function.instructions:
            if each.has_line and each.kind() != "release":
                lines[each.id] = len(lines) + 1
        messages = find_messages(plan, function, processes)
        of = f"{function.name}: " if functions[1:] else ""
        for each in messages:
            where = "at the beginning" if each.name == "rows" else "at the end"
            if each.start is not None and each.end is not None:
                where = f"lines {lines[each.start.id]} to {lines[each.end.id]}"
            verb = (
                f"`{each.how}` of"
                if each.how
                else {"sum": "the sum of", "gather": "the rows of", "broadcast": "the first one's"}[each.collective]
            )
            what = rows if each.name == "rows" else f"{verb} {', '.join(each.values)}"
            works = ", ".join(dict.fromkeys(work.label for work in each.meanwhile))
            sent = each.count_sent(processes)
            has_sets = isinstance(each.start, Start) and each.start.has_sets
            pieces = f" in buckets of {format_size(round(1e6 * bucket))}," if has_sets and bucket is not None else ""
            size = f"of unknown size{pieces.rstrip(',')}"
            if each.size is not None and sent is not None:
                size = f"{format_size(each.size)},{pieces} for which each process sends {format_size(sent)}"
            yield f"{of}{where}: {what}; {size}" + (f"; meanwhile {works}" if works else "")
        total = _add(each.count_sent(processes) for each in messages)
        known = "an unknown number of bytes" if total is None else format_size(total)
        count = f"{len(messages)} message{'' if len(messages) == 1 else 's'}"
        is_least = parallel is None or parallel.compress is None
        is_least = is_least and not any(model.is_synced for model in plan.program.models)
        rest = ", the least that there can be" if is_least else ""
        rest = f", {NOT_COUNTED} not counted" if plan.program.is_sharded else rest
        yield f"{of}in all {count}, and each process sends {known} in a step{rest}"


def export_messages(plan: CompiledStep, function: Function, processes: int) -> list[Json]:
    """Return the messages of a function as objects of the published format."""
    found: list[Json] = []
    for each in find_messages(plan, function, processes):
        ids: Object = {} if each.start is None or each.end is None else {"start": each.start.id, "end": each.end.id}
        sizes: Object = {"bytes": each.size, "sent": each.count_sent(processes)}
        what: Object = {"name": each.name, "collective": each.collective, "values": [*each.values]}
        found.append({**what, **ids, **sizes, "meanwhile": [work.id for work in each.meanwhile]})
    return found


def format_size(size: int) -> str:
    """Return bytes in words: `1.2 kB`."""
    if size < 1000:
        return f"{size} B"
    scale, unit = next(each for each in ((1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (inf, "TB")) if size < 1e3 * each[0])
    return f"{size / min(scale, 1e12):.1f} {unit}"


def _add(sizes: Iterable[int | None]) -> int | None:
    """Return the sum of sizes; None where one is unknown."""
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total


def _find_size(part: Sent, plan: CompiledStep, sizes: Mapping[str, int], *, is_number: bool) -> int | None:
    """Return the bytes of what a process sends of a value, given free dimensions; None where they are not known."""
    if part.models:
        return count_gradients(part.models, plan.program)
    known = plan.types.get(part.of, UNKNOWN)
    if known.shape is None:
        return NUMBER if is_number else None
    counts = [evaluate(size, sizes) for size in known.shape]
    if None in counts:
        return None
    return prod(count for count in counts if count is not None) * BYTES.get(known.dtype or "float32", NUMBER)


def count_gradients(models: tuple[str, ...], program: Program) -> int | None:
    """Return the bytes that are sent of gradients of models; None where a class has them, or models share some."""
    compress = None if program.parallel is None else program.parallel.compress
    total = counted = 0
    for name in models:
        model = program.model(name)
        if not model.parameters or not {*models}.isdisjoint(model.tied):
            return None
        frozen = {
            each for match in model.frozen for each in find_matching(match, [one.name for one in model.parameters])
        }
        for each in (each for each in model.parameters if each.name not in frozen):
            numbers = prod(each.shape)
            counted += numbers
            if compress is not None and compress.kind == "powersgd" and len(each.shape) > 1:
                rank, rows, columns = compress.options["rank"], each.shape[0], prod(each.shape[1:])
                assert isinstance(rank, int)
                numbers = min(numbers, (rows + columns) * min(rows, columns, rank))  # those of two thin factors
            total += numbers * BYTES[each.dtype]
    match compress:
        case Compression(kind="fp16" | "bf16"):
            return 2 * counted
        case Compression(kind="threshold" | "sign" as kind):  # and a byte for what is not finite
            return ceil(counted / (4 if kind == "threshold" else 8)) + 1
        case _:
            return total
