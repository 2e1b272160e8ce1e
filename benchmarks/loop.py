"""What `stepgraph run` adds to a step: ``python -m benchmarks.loop [BEFORE]``, in this tree and in an older one.

Each measurement is a process that trains twice through the command, for some steps and for three times as many. The
difference of the two runs is the time of steps in the loop, with their data, the log of every hundredth step and all
else but start and end. Then it takes as many bare steps of what `build` gives, in turn with the loop by hand that adds
least to them: in each epoch it copies the rows in another order, makes tensors of them and splits these into batches.
CPU time, as a ratio to that of bare steps.
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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.figures import Row, add_json, report

HERE = Path(__file__).resolve().parents[1]
STEPS: Mapping[str, int] = {"small-mlp": 4000, "gan-digits": 500}
TURNS = 20
"""How often bare steps and the loop by hand take turns in a process."""
ROWS, FEATURES, CLASSES, BATCH = 1024, 32, 10, 16
"""The data of `small-mlp`; those of `gan-digits` are its own."""
DIGITS = 1437
"""How many rows of the digits it trains on."""
MEASURED = """
import json, sys, time
from tempfile import TemporaryDirectory
import numpy as np
import torch
from compiler import compile_step
from graphspec import load
from runtime import build
from runtime.cli import execute

path, data, rows, steps, turns, shapes = json.loads(sys.stdin.read())
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
arrays = {name: drawn[kind](rows, *shape[1:]).numpy() for name, (kind, shape) in shapes.items()}
size = next(iter(shapes.values()))[1][0]

def draw_batches():
    draws, taken = np.random.default_rng(0), rows - rows % size
    while True:
        order = draws.permutation(rows)[:taken]
        epoch = [torch.from_numpy(array[order]).split(size) for array in arrays.values()]
        for batch in zip(*epoch):
            yield dict(zip(arrays, batch))

def take_bare(count):
    for number in range(count):
        step(batches[number % 64])

feed = draw_batches()

def take_by_hand(count):
    for _, batch in zip(range(count), feed):
        step(batch)

take_bare(64)
take_by_hand(64)
seconds = {take_bare: 0.0, take_by_hand: 0.0}
for turn in range(turns):
    for take in (take_bare, take_by_hand) if turn % 2 else (take_by_hand, take_bare):
        begin = time.process_time()
        take(2 * steps // turns)
        seconds[take] += time.process_time() - begin
print(json.dumps([looped, *seconds.values()]), file=sys.stderr)
"""


def make_asked(name: str, folder: Path) -> str:
    """Return what a process is asked for.

    The spec, its data and how many rows they have, numbers of steps and of turns, types and shapes of a batch.
    """
    rows = DIGITS if name == "gan-digits" else ROWS
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
    return json.dumps((str(path), {"train": data}, rows, STEPS[name], TURNS, shapes))


def measure(tree: Path, asked: str) -> Sequence[float]:
    """Return the CPU seconds of steps in the loop, of as many bare ones, and of as many by hand, in a new process."""
    surroundings = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", MEASURED]
    done = subprocess.run(command, cwd=tree, env=surroundings, input=asked, capture_output=True, text=True, check=True)
    return json.loads(done.stderr.splitlines()[-1])


def find_rows(trees: Mapping[str, Path], rounds: int) -> Iterator[Row]:
    """Yield the medians of each step in every tree, with the 10th and 90th percentiles of the ratios."""
    shuffled = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        for name in STEPS:
            asked, found = make_asked(name, Path(folder)), {tree: list[Sequence[float]]() for tree in trees}
            for _ in range(rounds):
                for tree in shuffled.sample(list(trees), len(trees)):
                    found[tree].append(measure(trees[tree], asked))
            for tree, seconds in found.items():
                looped, bare, by_hand = (
                    statistics.median(each) / 2 / STEPS[name] * 1e3 for each in zip(*seconds, strict=True)
                )
                yield {
                    "step": name,
                    "tree": tree,
                    "bare ms": bare,
                    "in the loop ms": looped,
                    "by hand ms": by_hand,
                    "of bare": find_ratio([looped / bare for looped, bare, _ in seconds]),
                    "by hand of bare": find_ratio([by_hand / bare for _, bare, by_hand in seconds]),
                }


def find_ratio(ratios: Sequence[float]) -> Sequence[float]:
    """Return the median of some ratios with their 10th and 90th percentiles."""
    ordered = sorted(ratios)
    return [statistics.median(ordered), ordered[len(ordered) // 10], ordered[-1 - len(ordered) // 10]]


def show(row: Row) -> str:
    """Return the line of a step in a tree."""
    cells = [f"{row[name]:.3f}" for name in ("bare ms", "in the loop ms")]
    for middle, low, high in (row["of bare"], row["by hand of bare"]):
        cells += [f"{middle:.2f}", f"{low:.2f} - {high:.2f}"]
    return f"| {row['step']} | {row['tree']} | {' | '.join(cells)} |"


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", nargs="?", type=Path, help="an older tree")
    parser.add_argument("--rounds", type=int, default=7)
    add_json(parser)
    given = parser.parse_args()
    trees = {name: tree.resolve() for name, tree in (("before", given.before), ("now", HERE)) if tree is not None}
    print("| step | tree | bare ms | in the loop ms | of the bare step | p10 - p90 | by hand, of it | p10 - p90 |")
    print("|---" * 8 + "|")
    report(find_rows(trees, given.rounds), show, given.json, given.rounds)


if __name__ == "__main__":
    main()
