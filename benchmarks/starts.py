"""CPU seconds of short processes: ``python -m benchmarks.starts [BEFORE]``, with an older tree next to this one.

In each round every process runs once in each tree, in random order. Some are floors: Python alone, Python with the
libraries that every command imports, and two programs that use these libraries as commands do, and do nothing else. One
of these also runs after the import of torch. Another program makes by hand what ``build`` makes of the spec.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.figures import Row, add_json, report

HERE = Path(__file__).resolve().parents[1]
SPEC = "examples/autoencoder/autoencoder.yaml"
COMMAND = "import sys; from runtime.cli import main; sys.exit(main({given!r}))"
QUIET = """
import gc
gc.disable()
"""
"""Switches the garbage collector off, as commands do."""
SMALL = f"""{QUIET}
import msgspec, pydantic, typer, yaml

class Spec(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, strict=True)
    path: str

app = typer.Typer(pretty_exceptions_enable=False)

@app.command()
def check(path: str, strict: bool = False) -> None:
    "Find every problem of a spec."
    Spec.model_validate({{"path": path}})

app(["spec.yaml"])
"""
"""A command that does nothing but have its arguments parsed and validate one value."""
SMALL_HELP = f"""{QUIET}
import typer

app = typer.Typer(pretty_exceptions_enable=False)

@app.command()
def check(path: str, strict: bool = False) -> None:
    "Find every problem of a spec."

app(["--help"])
"""
"""Its help, for which typer imports rich and none of the other libraries is needed."""
COMPILE = f"""
import torch
from compiler import compile_step
from graphspec import load
plan = compile_step(load({SPEC!r}))
"""
BUILD = f"""{COMPILE}
from runtime import build
build(plan, device="cpu")
"""
BY_HAND = f"""{QUIET}
import torch
from torch import nn, optim
encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
decoder = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Unflatten(1, (1, 8, 8)))
optimizers = [optim.Adam(model.parameters(), lr=1e-3) for model in (encoder, decoder)]
"""
"""The models and the optimizers of the spec, with PyTorch alone."""
TORCH, COMPILED, BUILT = "import torch", "import torch, read and compile", "import torch, and build"
ALONE, BESIDE, MADE = "torch without collections", "torch and a small command", "torch, and the same by hand"
PROGRAMS: Mapping[str, str] = {
    "Python": "pass",
    "Python and libraries": "import msgspec, pydantic, typer, yaml",
    "help of a small command": SMALL_HELP,
    "a small command": SMALL,
    "--help": COMMAND.format(given=["--help"]),
    "check": COMMAND.format(given=["check", SPEC]),
    "plan": COMMAND.format(given=["plan", SPEC]),
    TORCH: "import torch",
    COMPILED: COMPILE,
    BUILT: BUILD,
    ALONE: f"{QUIET}import torch",
    BESIDE: f"{QUIET}import torch\n{SMALL}",
    MADE: BY_HAND,
}
DIFFERENCES = (
    ("build, above torch", BUILT, TORCH),
    ("read and compile, above torch", COMPILED, TORCH),
    ("build alone", BUILT, COMPILED),
    ("a small command, above torch", BESIDE, ALONE),
    ("the same by hand, above torch", MADE, ALONE),
)
"""Titles of differences, each with the program that takes longer and what is not counted of it."""


def find_seconds(tree: Path, program: str) -> float:
    """Return the CPU seconds, of user and system, that a new process takes for a program."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    surroundings = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", program], cwd=tree, env=surroundings, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def find_rows(trees: Mapping[str, Path], rounds: int) -> Iterator[Row]:
    """Yield the median seconds of each program in every tree, and what a step takes above the import of torch."""
    pairs = [(tree, name) for tree in trees for name in PROGRAMS]
    found: dict[tuple[str, str], list[float]] = {pair: [] for pair in pairs}
    shuffled = random.Random(0)
    for number in range(rounds + 1):
        for tree, name in shuffled.sample(pairs, len(pairs)):
            seconds = find_seconds(trees[tree], PROGRAMS[name])
            if number:  # the first round compiles what Python has not compiled yet
                found[tree, name].append(seconds)
    medians = {pair: statistics.median(seconds) for pair, seconds in found.items()}
    for name in PROGRAMS:
        yield {"program": name, **{tree: medians[tree, name] for tree in trees}}
    for title, whole, part in DIFFERENCES:
        yield {"program": title, **{tree: medians[tree, whole] - medians[tree, part] for tree in trees}}


def show(row: Row) -> str:
    """Return the line of a program: a column for each tree, and the ratio of the last to the first."""
    medians = [row[tree] for tree in ("before", "now") if tree in row]
    ratio = f"  {medians[-1] / medians[0]:.2f}" if len(medians) > 1 else ""
    return f"{row['program']:30s}" + "".join(f" {each:6.3f}" for each in medians) + ratio


def main() -> None:
    """Print a table of medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", nargs="?", type=Path, help="an older tree")
    parser.add_argument("--rounds", type=int, default=15)
    add_json(parser)
    asked = parser.parse_args()
    trees = {name: tree.resolve() for name, tree in (("before", asked.before), ("now", HERE)) if tree is not None}
    report(find_rows(trees, asked.rounds), show, asked.json, asked.rounds)


if __name__ == "__main__":
    main()
