"""The benchmarks of the page, each a command of its own."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

OLDER = "BEFORE"
"""Stands in a command for the folder of an older tree."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A command that measures: ``python -m`` and the words, which understands ``--json FILE``."""

    measures: str
    words: str
    rounds: int | None = None
    """How often each variant is timed; None where nothing is timed."""
    needs: tuple[str, ...] = ("torch",)
    """The modules without which it cannot run."""

    @property
    def compares(self) -> bool:
        """Return whether it measures an older tree, too."""
        return OLDER in self.words.split()

    def command(self, rounds: int | None) -> str:
        """Return what to run, as the record has it, with so many rounds or its own number of them."""
        count = self.rounds and (rounds or self.rounds)
        return f"python -m {self.words}" + (f" --rounds {count}" if count else "")

    def arguments(self, rounds: int | None, before: Path | None) -> list[str]:
        """Return the arguments of Python, with the folder of the older tree."""
        return [str(before) if word == OLDER else word for word in shlex.split(self.command(rounds))[1:]]


PEERS = "peers"
"""The benchmark whose libraries may be those of another interpreter."""
COMPILING = f"benchmarks.compile_time {OLDER} . --ops"
BENCHMARKS: Mapping[str, Benchmark] = {
    "steps": Benchmark(
        measures="the time of the reference steps: idiom, expert, emitted and built, and emitted by an older tree",
        words=f"benchmarks.run --before {OLDER}",
        rounds=40,
    ),
    "captured": Benchmark(
        measures="the time of the reference steps as graphs, of the emitted ones and of the idiom",
        words="benchmarks.captured",
        rounds=41,
    ),
    "captured-examples": Benchmark(
        measures="the time of the examples as graphs, of their eager steps",
        words="benchmarks.captured --examples",
        rounds=21,
    ),
    "memory": Benchmark(
        measures="the peak of the allocator in a step, next to a loop by hand and an older tree",
        words=f"benchmarks.memory {OLDER}",
    ),
    "compile-1000": Benchmark(
        measures="the time to read and compile specs of 1,000 ops in eight shapes, in both trees",
        words=f"{COMPILING} 1000",
        rounds=5,
        needs=(),
    ),
    "compile-10000": Benchmark(
        measures="the same with 10,000 ops",
        words=f"{COMPILING} 10000",
        rounds=1,
        needs=(),
    ),
    "compile-coupled": Benchmark(
        measures="the same with 8,415 ops of coupled models, and the memory of the process",
        words=f'{COMPILING} 8415 --shape "coupled models"',
        rounds=1,
        needs=(),
    ),
    "compile-growth": Benchmark(
        measures="the time for each of 100,000 ops, of that for each of 1,000, in three shapes",
        words="benchmarks.compile_time . . --ops 100000 --of 1000 "
        '--shape "chain of calls" --shape "independent models" --shape "coupled models"',
        rounds=2,
        needs=(),
    ),
    "starts": Benchmark(
        measures="the CPU time of short commands and of a first build, in both trees",
        words=f"benchmarks.starts {OLDER}",
        rounds=15,
    ),
    "loop": Benchmark(
        measures="the CPU time of a step in `stepgraph run`, of the bare one, in both trees",
        words=f"benchmarks.loop {OLDER}",
        rounds=5,
    ),
    PEERS: Benchmark(
        measures="the time of three steps in other libraries, on both frameworks, with memory and the time to build",
        words="benchmarks.peers --slice-ms 40",
        rounds=14,
        needs=("torch", "tensorflow", "keras", "lightning", "accelerate", "ignite"),
    ),
    "processes": Benchmark(
        measures="the time of steps of two processes, of DistributedDataParallel",
        words="benchmarks.processes",
        rounds=120,
    ),
    "sparse-rows": Benchmark(
        measures="the time and memory of a step on a large table, on PyTorch",
        words="benchmarks.sparse_rows",
        rounds=9,
    ),
    "sparse-rows-tensorflow": Benchmark(
        measures="the same on TensorFlow",
        words="benchmarks.sparse_rows --backend tensorflow",
        rounds=9,
        needs=("tensorflow",),
    ),
    "tensorflow": Benchmark(
        measures="the time of steps on TensorFlow, next to steps by hand and Keras",
        words="benchmarks.tensorflow_run",
        rounds=120,
        needs=("tensorflow",),
    ),
    "tensorflow-xla": Benchmark(
        measures="the same, compiled by XLA",
        words="benchmarks.tensorflow_run --xla",
        rounds=120,
        needs=("tensorflow",),
    ),
}
"""By name; the record of each is ``results/NAME.json``."""
