"""Steps of gloo processes beside what `plan --simulate` says of them: ``python -m benchmarks.scaling [--rounds 100]``.

The model is given what one process measures, a step of the whole batch and one of a single row, and what a message
takes between two: nothing of the steps that it foretells. All processes share the cores of this machine, so laps are
short, and the shortest of them counts: it met the least else on the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import cpu_count
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from benchmarks.processes import time_steps
from compiler import compile_step
from compiler.plan.simulate.cluster import Cluster
from compiler.plan.simulate.simulation import simulate
from graphspec import load
from runtime import build

SPEC = """
graphspec: 1
name: scaled
parallel: {kind: replicated}
inputs: {x: {shape: [batch, INPUT]}, y: {shape: [batch, 10]}}
models: {net: {layers: [LAYERS, {linear: 10}], optimizer: {name: sgd, lr: 0.01, momentum: 0.9}}}
ops:
  out: {forward: net, inputs: x}
  loss: {loss: mse, inputs: [out, y]}
  step: {update: net, loss: loss}
outputs: [loss]
"""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A step, and the rows of its batch, which all processes share."""

    name: str
    shape: tuple[int, ...]
    layers: str
    batch: int

    @property
    def spec(self) -> str:
        """Return the spec of the step."""
        return SPEC.replace("INPUT", ", ".join(map(str, self.shape))).replace("LAYERS", self.layers)


CONVOLUTIONS = (
    "{conv2d: {out: 32, kernel: 3, padding: 1}}, relu, {conv2d: {out: 32, kernel: 3, stride: 2}}, relu, flatten"
)
WORKLOADS = (
    Workload(name="convolutions, 26 thousand parameters", shape=(3, 16, 16), layers=CONVOLUTIONS, batch=128),
    Workload(
        name="dense layers, 2.1 million parameters",
        shape=(1024,),
        layers="{linear: 1024}, tanh, {linear: 1024}, tanh",
        batch=128,
    ),
)
COUNTS = (1, 2, 4, 8)
SMALL, LARGE = 1, 2_000_000
"""The numbers in a message by which latency is measured, and in one by which bandwidth is."""
LAP = 12
"""About how many milliseconds of steps are measured at a time."""


def make_step(workload: Workload, rows: int, rank: int) -> Callable[[], object]:
    """Return a step of this process on its rows."""
    draws = np.random.default_rng(rank)
    drawn = {"x": draws.normal(size=(rows, *workload.shape)), "y": draws.normal(size=(rows, 10))}
    batch = {name: torch.tensor(array, dtype=torch.float32) for name, array in drawn.items()}
    step = build(compile_step(load(workload.spec)), device="cpu", seed=0)
    return lambda: step(batch)


def measure_laps(step: Callable[[], object], rounds: int) -> list[float]:
    """Return the milliseconds of a step, of some laps; a step takes as long as it does on the slowest process."""
    for _ in range(3):
        step()
    count = max(1, int(LAP / time_steps(step, 3)))
    return [time_steps(step, count) for _ in range(rounds)]


def measure_message(numbers: int, rounds: int) -> float:
    """Return the shortest seconds of a sum of so many numbers."""
    value, taken = torch.zeros(numbers), list[float]()
    for _ in range(5 * rounds):
        dist.barrier()
        begun = time.perf_counter()
        dist.all_reduce(value)
        taken.append(time.perf_counter() - begun)
    return min(taken)


def run(rank: int, count: int, rounds: int, folder: str) -> None:
    """Measure as one of some processes; the first writes what it found."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet-{count}", rank=rank, world_size=count)
    found: dict[str, object] = {
        each.name: measure_laps(make_step(each, each.batch // count, rank), rounds) for each in WORKLOADS
    }
    if count == 1:
        found |= {f"{each.name}, one row": measure_laps(make_step(each, 1, rank), rounds) for each in WORKLOADS}
    elif count == 2:
        found |= {"small": measure_message(SMALL, rounds), "large": measure_message(LARGE, rounds)}
    if rank == 0:
        Path(folder, f"{count}.json").write_text(json.dumps(found))
    dist.barrier()  # none leaves while another still sends
    dist.destroy_process_group()


def predict(
    workload: Workload, measured: Mapping[int, Mapping[str, list[float]]], network: Cluster
) -> Mapping[int, float]:
    """Return the milliseconds of a step that the model says, by the number of processes."""
    whole, row = (min(measured[1][f"{workload.name}{of}"]) for of in ("", ", one row"))
    cluster = Cluster(
        ranks=COUNTS,
        bandwidth=network.bandwidth,
        latency=network.latency,
        step=whole / 1e3,
        overhead=row / 1e3,
        cores=cpu_count(),
        collectives="ring",  # as gloo has it
        sizes={"batch": workload.batch},
    )
    simulation = simulate(compile_step(load(workload.spec)), "train", cluster)
    return {each.ranks: 1e3 * each.step for each in simulation.estimates}


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    measured: dict[int, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in COUNTS:
            mp.spawn(run, args=(count, rounds, folder), nprocs=count)
            measured[count] = json.loads(Path(folder, f"{count}.json").read_text())
    small, large = (float(measured[2][name]) for name in ("small", "large"))  # two processes: a ring of two hops
    network = Cluster(ranks=COUNTS, latency=small / 2, bandwidth=4 * LARGE / (large - small))
    print(f"{cpu_count()} cores; a hop takes {1e6 * network.latency:.0f} us, {network.bandwidth / 1e9:.2f} GB/s\n")
    print("| step | processes | rows each | shortest lap, ms | median, ms | simulated, ms | simulated / shortest |")
    print("|---|---|---|---|---|---|---|")
    for workload in WORKLOADS:
        expected = predict(workload, measured, network)
        for count in COUNTS:
            laps = measured[count][workload.name]
            figures = f"{min(laps):.2f} | {statistics.median(laps):.2f} | {expected[count]:.2f}"
            ratio = expected[count] / min(laps)
            print(f"| {workload.name} | {count} | {workload.batch // count} | {figures} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
