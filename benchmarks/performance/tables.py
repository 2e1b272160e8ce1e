"""The tables of the page, each made from the records of some benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.performance.cells import Rows, brief, find, head, line, number, spread, thousands
from benchmarks.performance.floors import write_floors
from benchmarks.performance.goals import write_goals
from benchmarks.performance.record import RESULTS, read

Figures = Mapping[str, Rows]
"""By the name of a benchmark."""
CALLS: Mapping[str, str] = {
    "chain": "each on the result before it",
    "fan": "all on the same result, each with a mean of its own",
    "losses": "twenty losses of the same result",
}


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table: the benchmarks that it reads, and what writes its lines."""

    reads: tuple[str, ...]
    write: Callable[[Figures], Iterator[str]]

    def render(self, folder: Path = RESULTS) -> str:
        """Return the table, from the records of a folder."""
        return "\n".join(self.write({name: read(folder, name).figures for name in self.reads}))


def write_steps(rows: Rows) -> Iterator[str]:
    """Yield the variants of each step but those of an older tree and floors, which have tables of their own."""
    yield head("step", "variant", "ms", "of expert", "p10 - p90", "CPU time of expert")
    for row in rows:
        if row["variant"] not in ("emitted step before", "floor"):
            ratio, cpu = row["of expert"], row["CPU time of expert"]
            figures = number(row["ms"], 3), number(ratio[0], 3), spread(ratio), number(cpu, 3)
            yield line(row["step"], row["variant"], *figures)


def write_peers(figures: Figures) -> Iterator[str]:
    """Yield the libraries, by step."""
    titles = ("steps/s", "of expert", "p10 - p90", "CPU time of expert", "MB", "build s")
    yield head("step", "library", *titles)
    for row in figures["peers"]:
        ratio, cpu = row["of expert"], row["CPU time of expert"]
        ratios = number(ratio[0]), spread(ratio), number(cpu)
        sizes = number(row["MB"], 0), number(row["build s"], 1)
        yield line(row["step"], row["library"], thousands(row["steps/s"]), *ratios, *sizes)


def write_captured(figures: Figures) -> Iterator[str]:
    """Yield the captured steps."""
    yield head("step", "captured ms", "of emitted", "p10 - p90", "of idiom", "p10 - p90", "graphs", "compiled in s")
    for row in figures["captured"]:
        ratios = (cell for each in ("of eager", "of idiom") for cell in (number(row[each][0]), spread(row[each])))
        yield line(
            row["step"], number(row["captured ms"], 3), *ratios, f"{row['graphs']}", number(row["compiled s"], 0)
        )


def write_memory(figures: Figures) -> Iterator[str]:
    """Yield the megabytes of each shape, in both modes."""
    yield head("calls", "mode", "by hand, MB", "emitted, MB", "before")
    for row in figures["memory"]:
        calls = CALLS[row["calls"]] if row["mode"] == "train" else ""
        yield line(calls, row["mode"], *(number(row[each], 0) for each in ("expert", "emitted", "before")))


def write_large_tables(figures: Figures) -> Iterator[str]:
    """Yield the variants of a step on a large table, with both frameworks next to each other."""
    yield head("rule", "gradient, `sparse` of the rule", "PyTorch ms", "MB", "TensorFlow ms", "MB")
    for row in figures["sparse-rows"]:
        other = find(figures["sparse-rows-tensorflow"], rule=row["rule"], variant=row["variant"])
        cells = (cell for each in (row, other) for cell in (brief(each["ms"]), number(each["MB"], 0)))
        yield line(row["rule"], row["variant"], *cells)


def write_processes(figures: Figures) -> Iterator[str]:
    """Yield the steps of two processes; a cell has a variant's ratio with its percentiles."""
    rows = figures["processes"]
    yield head("step", "DDP ms", "of DDP (median, p10 - p90)", "`bucket_mb: 1`", "and the rows known")
    for step in dict.fromkeys(row["step"] for row in rows):
        names = "stepgraph", "stepgraph, bucket_mb: 1", "stepgraph, bucket_mb: 1, rows known"
        ratios = [find(rows, step=step, variant=name)["of DDP"] for name in names]
        base = find(rows, step=step, variant="DistributedDataParallel")
        yield line(step, brief(base["ms"]), *(f"{number(each[0])}, {spread(each)}" for each in ratios))


def write_compile_time(figures: Figures) -> Iterator[str]:
    """Yield the shapes of specs, with both sizes next to each other."""
    first = "load, 1,000 ops", "compile", "MB", "floor", "of before"
    yield head("shape", *first, "load, 10,000 ops", "compile", "MB")
    for row in figures["compile-1000"]:
        small, large = row["now"], find(figures["compile-10000"], shape=row["shape"])["now"]
        sizes = [[number(each[name], 0) for name in ("load", "compile", "MB")] for each in (small, large)]
        yield line(row["shape"], *sizes[0], number(row["floor"], 0), number(row["of before"]), *sizes[1])


COMPILED = ("compile-1000", "compile-10000", "compile-coupled", "compile-growth")
TABLES: Mapping[str, Table] = {
    "steps": Table(reads=("steps",), write=lambda figures: write_steps(figures["steps"])),
    "goals": Table(
        reads=(
            "steps",
            *COMPILED,
            "starts",
            "loop",
            "memory",
            "captured",
            "captured-examples",
            "peers",
            "processes",
        ),
        write=write_goals,
    ),
    "floors": Table(reads=("steps", "compile-1000", "starts", "captured", "loop"), write=write_floors),
    "peers": Table(reads=("peers",), write=write_peers),
    "captured": Table(reads=("captured",), write=write_captured),
    "memory": Table(reads=("memory",), write=write_memory),
    "large-tables": Table(reads=("sparse-rows", "sparse-rows-tensorflow"), write=write_large_tables),
    "processes": Table(reads=("processes",), write=write_processes),
    "tensorflow": Table(reads=("tensorflow",), write=lambda figures: write_steps(figures["tensorflow"])),
    "tensorflow-xla": Table(reads=("tensorflow-xla",), write=lambda figures: write_steps(figures["tensorflow-xla"])),
    "compile-time": Table(reads=COMPILED[:2], write=write_compile_time),
}
"""By the name that the page has between its markers."""
