"""What `stepgraph run` adds to a step: ``python -m benchmarks.loop [BEFORE]``, in this tree and in an older one.

Each measurement is a process that trains twice through the command, for some steps and for three times as many, and
then takes as many steps of what `build` gives. The difference of the two runs is the time of steps in the loop, with
their data, the log of every hundredth step and all else but start and end. CPU time, as a ratio to that of bare steps.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from benchmarks.figures import Row, add_json, report

HERE = Path(__file__).resolve().parents[1]
STEPS: Mapping[str, int] = {"small-mlp": 4000, "gan-digits": 500}
ROWS, FEATURES, CLASSES, BATCH = 1024, 32, 10, 16
"""The data of `small-mlp`; those of `gan-digits` are its own."""
MEASURED = """
import json, sys, time
from tempfile import TemporaryDirectory
import torch
from compiler import compile_step
from graphspec import load
from runtime import build
from runtime.cli import execute

path, data, steps, shapes = json.loads(sys.stdin.read())
torch.set_num_threads(1)

def train(count):
    with TemporaryDirectory() as folder:
        run = json.dumps({"steps": count, "log_every": 100})
        given = ["run", path, "--set", "data=" + json.dumps(data), "--set", "run=" + run, "--out", folder + "/run"]
        begin = time.process_time()
        assert execute(given) == 0
        return time.process_time() - begin

train(10)
looped = train(3 * steps) - train(steps)
step = build(compile_step(load(path)), device="cpu")
drawn = {"float32": torch.randn, "int64": lambda *shape: torch.randint(0, 10, shape)}
batches = [{name: drawn[kind](*shape) for name, (kind, shape) in shapes.items()} for _ in range(64)]
for batch in batches:
    step(batch)
begin = time.process_time()
for number in range(2 * steps):
    step(batches[number % 64])
print(json.dumps([looped, time.process_time() - begin]), file=sys.stderr)
"""


def make_asked(name: str, folder: Path) -> str:
    """Return what a process is asked for: the spec, its data, a number of steps, types and shapes of a batch."""
    if name == "gan-digits":
        path, data = HERE / "examples" / name / f"{name}.yaml", {"source": "digits", "batch": 64, "shuffle": True}
        shapes = {"image": ("float32", (64, 1, 8, 8))}
    else:
        path, kept, draws = (
            HERE / "benchmarks" / "specs" / f"{name}.yaml",
            folder / "data.npz",
            np.random.default_rng(0),
        )
        x, label = draws.standard_normal((ROWS, FEATURES), dtype=np.float32), draws.integers(0, CLASSES, ROWS)
        np.savez(kept, x=x, label=label)
        data = {"source": "npz", "path": str(kept), "batch": BATCH, "shuffle": True}
        shapes = {"x": ("float32", (BATCH, FEATURES)), "label": ("int64", (BATCH,))}
    return json.dumps((str(path), {"train": data}, STEPS[name], shapes))


def measure(tree: Path, asked: str) -> tuple[float, float]:
    """Return the CPU seconds of a number of steps in the loop, and of as many bare ones, in a new process."""
    surroundings = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", MEASURED]
    done = subprocess.run(command, cwd=tree, env=surroundings, input=asked, capture_output=True, text=True, check=True)
    looped, bare = json.loads(done.stderr.splitlines()[-1])
    return looped, bare


def find_rows(trees: Mapping[str, Path], rounds: int) -> Iterator[Row]:
    """Yield the medians of each step in every tree, with the 10th and 90th percentiles of the ratio."""
    shuffled = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        for name in STEPS:
            asked, found = make_asked(name, Path(folder)), {tree: list[tuple[float, float]]() for tree in trees}
            for _ in range(rounds):
                for tree in shuffled.sample(list(trees), len(trees)):
                    found[tree].append(measure(trees[tree], asked))
            for tree, pairs in found.items():
                ratios = sorted(looped / bare for looped, bare in pairs)
                spread = ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]
                looped, bare = (statistics.median(each) / 2 / STEPS[name] * 1e3 for each in zip(*pairs, strict=True))
                of_bare = [statistics.median(ratios), *spread]
                yield {"step": name, "tree": tree, "bare ms": bare, "in the loop ms": looped, "of bare": of_bare}


def show(row: Row) -> str:
    """Return the line of a step in a tree."""
    middle, low, high = row["of bare"]
    figures = f"{row['bare ms']:.3f} | {row['in the loop ms']:.3f} | {middle:.2f} | {low:.2f} - {high:.2f}"
    return f"| {row['step']} | {row['tree']} | {figures} |"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", nargs="?", type=Path, help="an older tree")
    parser.add_argument("--rounds", type=int, default=7)
    add_json(parser)
    given = parser.parse_args()
    trees = {name: tree.resolve() for name, tree in (("before", given.before), ("now", HERE)) if tree is not None}
    print("| step | tree | bare ms | in the loop ms | of the bare step | p10 - p90 |", "|---" * 6 + "|", sep="\n")
    report(find_rows(trees, given.rounds), show, given.json, given.rounds)


if __name__ == "__main__":
    main()
