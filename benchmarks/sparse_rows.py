"""What a step on a large table costs: `python -m benchmarks.sparse_rows`, with `--backend tensorflow` for that one.

A table of 1,000,000 x 64 is looked up at 256 indices. Every round takes one step of every variant, in random order.
Time is the median over the rounds; memory is the greatest resident size in a step above the size before it, in a round
of its own (Linux: /proc/self/clear_refs). A variant holds the table, and what its rule keeps for it, all the time.
"""

from __future__ import annotations

import argparse
import gc
import random
import re
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.figures import Row, add_json, report
from compiler import compile_step
from graphspec import load
from runtime import Step, build

SPEC = """
graphspec: 1
name: large
inputs: {{ids: {{shape: [256], dtype: int64}}, y: {{shape: [256, 64]}}}}
models:
  table:
    layers: [{{embedding: {{count: {count}, size: 64, sparse: {sparse}}}}}]
    optimizer: {{name: {rule}, sparse: {how}}}
ops:
  found: {{forward: table, inputs: ids}}
  loss: {{loss: mse, inputs: [found, y]}}
  step: {{update: table, loss: loss}}
"""
VARIANTS: Mapping[str, Mapping[str, str]] = {
    "dense": {"sparse": "false", "how": "dense"},
    "rows, dense": {"sparse": "true", "how": "dense"},
    "rows, lazy": {"sparse": "true", "how": "lazy"},
}


def measure_memory(step: Step, batch: Mapping[str, np.ndarray]) -> float:
    """Return by how many MB the resident size exceeds the one before, at most, while a step is taken."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    before = read_size("VmRSS")
    step(batch)
    return (read_size("VmHWM") - before) / 1024


def read_size(name: str) -> int:
    """Return an entry of this process's memory, in kB."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return int(found[1])


def find_rows(backend: str, rounds: int, rules: Sequence[str], count: int) -> Iterator[Row]:
    """Yield a row per rule and variant."""
    numbers = np.random.default_rng(0)
    batch = {"ids": numbers.integers(0, count, 256), "y": numbers.normal(size=(256, 64)).astype(np.float32)}
    for rule in rules:
        steps: dict[str, Step] = {}
        for name, fields in VARIANTS.items():
            text = SPEC.format(rule=rule, count=count, **fields)
            text = text if fields["sparse"] == "true" else text.replace(", sparse: dense", "")
            steps[name] = build(compile_step(load(text), backend), device="cpu", seed=0)
            for _ in range(2):
                steps[name](batch)
        times: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(rounds):
            for name in random.sample([*steps], len(steps)):
                began = time.perf_counter()
                np.asarray(steps[name].numpy(steps[name](batch)["loss"]))
                times[name].append(1000 * (time.perf_counter() - began))
        for name, step in steps.items():
            memory = statistics.median(measure_memory(step, batch) for _ in range(3))
            yield {"rule": rule, "variant": name, "ms": statistics.median(times[name]), "MB": memory}
        del steps


def show(row: Row) -> str:
    """Return the line of a variant."""
    return f"| {row['rule']} | {row['variant']} | {row['ms']:.2f} | {row['MB']:.0f} |"


def main() -> None:
    """Print a line per rule and variant."""
    parser = argparse.ArgumentParser(description="Measure steps on a large table.")
    parser.add_argument("--backend", choices=("torch", "tensorflow"), default="torch")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--rules", nargs="+", default=["adam", "adagrad"])
    parser.add_argument("--count", type=int, default=1_000_000)
    add_json(parser)
    given = parser.parse_args()
    print("| rule | variant | ms | MB above |\n|---|---|---|---|")
    report(find_rows(given.backend, given.rounds, given.rules, given.count), show, given.json, given.rounds)


if __name__ == "__main__":
    main()
