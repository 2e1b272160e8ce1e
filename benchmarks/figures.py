"""Figures of a benchmark as rows: each is printed when it is measured, and ``--json FILE`` writes all of them."""

from __future__ import annotations

import json
import os
import platform
import statistics
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from runtime.bench.interleaving import Timing

Row = Mapping[str, Any]
"""Figures by name. A ratio with its spread is a list: median, 10th and 90th percentile."""
DIGITS = 6
"""How many digits of a number are written."""
MEASURED = ("torch", "tensorflow-cpu", "tensorflow", "keras", "lightning", "accelerate", "pytorch-ignite")


def add_json(parser: ArgumentParser) -> None:
    """Add the option that names a file for the figures."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file, too")


def report(
    rows: Iterable[Row], show: Callable[[Row], str], path: Path | None, rounds: int | None = None
) -> Sequence[Row]:
    """Print rows as they are measured, and return them; with a path, the file has those so far after each of them."""
    found, machine = list[Row](), describe()
    for row in rows:
        print(show(row), flush=True)
        found.append(row)
        if path is not None:
            write(path, {"rounds": rounds, "machine": machine, "figures": found})
    return found


def write(path: Path, contents: Mapping[str, Any]) -> None:
    """Write figures and what is known of them as JSON, with a line for each row of figures."""
    facts = {name: value for name, value in contents.items() if name != "figures"}
    head = "".join(f"  {json.dumps(name)}: {json.dumps(shorten(value))},\n" for name, value in facts.items())
    rows = ",\n".join(f"    {json.dumps(shorten(row))}" for row in contents["figures"])
    path.write_text(f'{{\n{head}  "figures": [\n{rows}\n  ]\n}}\n', encoding="utf-8")


def shorten(value: Any) -> Any:
    """Return a value with its numbers rounded to the digits that are written."""
    match value:
        case float():
            return float(f"{value:.{DIGITS}g}")
        case Mapping():
            return {name: shorten(each) for name, each in value.items()}
        case list() | tuple():
            return [shorten(each) for each in value]
        case _:
            return value


def describe() -> dict[str, Any]:
    """Return the machine, its load, and the versions of what is measured."""
    versions = {}
    for name in MEASURED:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return {"python": platform.python_version(), "cores": os.cpu_count(), "load": load, "versions": versions}


def compared(timing: Timing) -> Row:
    """Return what was measured of a variant next to the expert."""
    ratios = [timing.ratio, timing.low, timing.high]
    return {"ms": timing.milliseconds, "of expert": ratios, "CPU time of expert": timing.cpu_ratio}


TIMINGS = "| step | variant | ms | of expert | p10 - p90 | CPU time of expert |\n|---|---|---|---|---|---|"
"""The head of a table of variants."""


def show_timing(row: Row) -> str:
    """Return the line of a variant."""
    ratio, low, high = row["of expert"]
    figures = f"{row['ms']:.3f} | {ratio:.3f} | {low:.2f} - {high:.2f} | {row['CPU time of expert']:.3f}"
    return f"| {row['step']} | {row['variant']} | {figures} |"


def find_mean(rows: Sequence[Row], other: str) -> float:
    """Return the geometric mean of the ratios to another step; those of steps without a graph do not count."""
    return statistics.geometric_mean(row[f"of {other}"][0] for row in rows if row.get("graphs") != 0)
