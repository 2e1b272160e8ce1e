"""CPU seconds of short processes: ``python -m benchmarks.starts [BEFORE]``, with an older tree next to this one.

In each round every process runs once in each tree, in random order. Two are floors: Python alone, and with the
libraries that every command imports.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
SPEC = "examples/autoencoder/autoencoder.yaml"
COMMAND = "import sys; from runtime.cli import main; sys.exit(main({given!r}))"
BUILD = f"""
import torch
from compiler import compile_step
from graphspec import load
from runtime import build
build(compile_step(load({SPEC!r})), device="cpu")
"""
PROGRAMS: Mapping[str, str] = {
    "Python": "pass",
    "Python and libraries": "import msgspec, pydantic, typer, yaml",
    "--help": COMMAND.format(given=["--help"]),
    "check": COMMAND.format(given=["check", SPEC]),
    "plan": COMMAND.format(given=["plan", SPEC]),
    "import torch": "import torch",
    "import torch, and build": BUILD,
}


def find_seconds(tree: Path, program: str) -> float:
    """Return the CPU seconds, of user and system, that a new process takes for a program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    surroundings = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", program], cwd=tree, env=surroundings, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    """Print a table of medians: a column for each tree, and the ratio of the last to the first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", nargs="?", type=Path, help="an older tree")
    parser.add_argument("--rounds", type=int, default=15)
    asked = parser.parse_args()
    trees = tuple(each.resolve() for each in (asked.before, HERE) if each is not None)
    pairs = [(tree, name) for tree in trees for name in PROGRAMS]
    found: dict[tuple[Path, str], list[float]] = {pair: [] for pair in pairs}
    shuffled = random.Random(0)
    for number in range(asked.rounds + 1):
        for tree, name in shuffled.sample(pairs, len(pairs)):
            seconds = find_seconds(tree, PROGRAMS[name])
            if number:  # the first round compiles what Python has not compiled yet
                found[tree, name].append(seconds)
    for name in PROGRAMS:
        medians = [statistics.median(found[tree, name]) for tree in trees]
        ratio = f"  {medians[-1] / medians[0]:.2f}" if len(medians) > 1 else ""
        print(f"{name:24s}" + "".join(f" {each:6.3f}" for each in medians) + ratio)


if __name__ == "__main__":
    main()
