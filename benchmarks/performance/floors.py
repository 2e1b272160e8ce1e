"""The table of floors: where a goal is missed, what we reach, and the least that we know how to reach at all."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.figures import find_mean
from benchmarks.performance.cells import Rows, find, head, line, number, search, spread
from benchmarks.performance.goals import GOALS, SHAPES, SLOWER

STARTS: Mapping[str, tuple[str, str, str]] = {
    "--help": ("CPU seconds of `--help`", "--help", "help of a small command"),
    "check": ("CPU seconds of `check`", "check", "a small command"),
    "plan": ("CPU seconds of `plan`", "plan", "a small command"),
    "build": (
        "CPU seconds to read, compile and build, above importing torch",
        "build, above torch",
        "a small command, above torch",
    ),
}
"""By goal: what the line says, the process, and the one that is its floor."""
LOOPS: Mapping[str, str] = {"small-mlp": "`small-mlp`", "gan-digits": "a GAN on digits"}


def write_floors(figures: Mapping[str, Rows]) -> Iterator[str]:
    """Yield what is missed with its floor, whose cell is empty where the record is older than the floor."""
    yield head("what", "now", "floor", "goal")
    for step in SLOWER:
        now = find(figures["steps"], step=step, variant="emitted step")
        floor = search(figures["steps"], step=step, variant="floor")
        ratios = (number(row["of expert"][0]) if row else "" for row in (now, floor))
        yield line(f"emitted step of `{step}`, of the expert's", *ratios, GOALS[step])
    rows = [find(figures["compile-1000"], shape=shape) for shape in SHAPES]
    reading, compiling = (_list([row["now"][name] for row in rows]) for name in ("load", "compile"))
    to_read, to_compile = (_list([row.get(name) for row in rows]) for name in ("load floor", "floor"))
    what = "reading 1,000 ops, microseconds for each: a chain, independent, coupled models"
    yield line(what, reading, to_read, GOALS["reading"])
    yield line("compiling them", compiling, to_compile, GOALS["compiling"])
    for goal, (what, *programs) in STARTS.items():
        now, floor = find(figures["starts"], program=programs[0]), search(figures["starts"], program=programs[1])
        yield line(what, *(number(row["now"]) if row else "" for row in (now, floor)), GOALS[goal])
    now, floors = find_mean(figures["captured"], "eager"), [row.get("floor") for row in figures["captured"]]
    floor = "" if None in floors else number(statistics.geometric_mean(floors))
    yield line("captured step, of the emitted one, geometric mean of eleven", number(now), floor, "0.70")
    for step, title in LOOPS.items():
        row = find(figures["loop"], step=step, tree="now")
        ratios = (_tell(row.get(each)) for each in ("of bare", "by hand of bare"))
        yield line(f"step of `stepgraph run`, of the bare step, in CPU time: {title}", *ratios, GOALS["run"])


def _list(microseconds: Sequence[Any]) -> str:
    """Return the microseconds of the shapes; nothing where one of them is not known."""
    return "" if None in microseconds else ", ".join(number(each, 0) for each in microseconds)


def _tell(ratio: Sequence[float] | None) -> str:
    """Return the median and the percentiles of a ratio; nothing where it is not known."""
    return f"{number(ratio[0])} ({spread(ratio)})" if ratio else ""
