"""Steps of two gloo processes beside DistributedDataParallel: ``python -m benchmarks.processes [--rounds 100]``.

Every round takes some steps of each variant, in random order, on both processes at once; a step takes as long as its
slower process does. DistributedDataParallel is right in these steps: each model has one forward and one backward.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.figures import Row, add_json, report
from compiler import compile_step
from graphspec import load
from runtime import build

HEAD = """
graphspec: 1
name: timed
parallel: {kind: replicated}
inputs: {x: {shape: [batch, WIDTH]}, y: {shape: [batch, 10]}}
"""
MODEL = """  NAME:
    layers: [{linear: WIDTH}, tanh, {linear: WIDTH}, tanh, {linear: 10}]
    optimizer: {name: sgd, lr: 0.01, momentum: 0.9}
"""
OPS = """  NAME_out: {forward: NAME, inputs: x}
  NAME_loss: {loss: mse, inputs: [NAME_out, y]}
  NAME_step: {update: NAME, loss: NAME_loss}
"""
BATCH = 64
"""Rows of each process."""
LAP = 12
"""The milliseconds that one variant runs at a time: short, so that some laps meet nothing else on the machine."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Models of three layers with a width, each with a loss of its own."""

    name: str
    width: int
    models: tuple[str, ...] = ("a",)

    @property
    def spec(self) -> str:
        """Return the spec of the step."""
        parts = [
            HEAD,
            "models:\n",
            *(MODEL.replace("NAME", name) for name in self.models),
            "ops:\n",
            *(OPS.replace("NAME", name) for name in self.models),
        ]
        return "".join(parts).replace("WIDTH", str(self.width))


WORKLOADS = (
    Workload(name="one model, 10 thousand parameters", width=64),
    Workload(name="one model, 140 thousand parameters", width=256),
    Workload(name="one model, 2.1 million parameters", width=1024),
    Workload(name="two models of 140 thousand parameters", width=256, models=("a", "b")),
    Workload(name="two models of 2.1 million parameters", width=1024, models=("a", "b")),
)
Variant = Callable[[], object]
BASELINE = "DistributedDataParallel"


def make_ours(workload: Workload, batch: Mapping[str, torch.Tensor], *options: str) -> Variant:
    """Return the step of the spec, with options of `parallel`."""
    step = build(compile_step(load(workload.spec, [f"parallel.{each}" for each in options])), device="cpu", seed=0)
    return lambda: step(batch)


def make_ddp(workload: Workload, batch: Mapping[str, torch.Tensor]) -> Variant:
    """Return the step as one writes it by hand."""
    trained: list[tuple[DistributedDataParallel, torch.optim.Optimizer]] = []
    for _ in workload.models:
        width = workload.width
        layers = nn.Linear(width, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 10)
        net = DistributedDataParallel(nn.Sequential(*layers), gradient_as_bucket_view=True)
        trained.append((net, torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, foreach=True)))

    def step() -> list[torch.Tensor]:
        """Take a step of every model."""
        losses: list[torch.Tensor] = []
        for net, optimizer in trained:
            optimizer.zero_grad()
            loss = F.mse_loss(net(batch["x"]), batch["y"])
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses

    return step


def make_told(workload: Workload, batch: Mapping[str, torch.Tensor]) -> Variant:
    """Return the step of the spec where all have as many rows, as DistributedDataParallel takes for granted."""
    step = build(compile_step(load(workload.spec, ["parallel.bucket_mb=1"])), device="cpu", seed=0)
    return lambda: step(batch, rows=BATCH * dist.get_world_size())


VARIANTS: Mapping[str, Callable[[Workload, Mapping[str, torch.Tensor]], Variant]] = {
    BASELINE: make_ddp,
    "stepgraph": make_ours,
    "stepgraph, bucket_mb: 1": lambda workload, batch: make_ours(workload, batch, "bucket_mb=1"),
    "stepgraph, bucket_mb: 4": lambda workload, batch: make_ours(workload, batch, "bucket_mb=4"),
    "stepgraph, bucket_mb: 1, rows known": make_told,
}


def time_steps(step: Variant, count: int) -> float:
    """Return the milliseconds of a step on the slower process, over some steps."""
    dist.barrier()
    begun = time.perf_counter()
    for _ in range(count):
        step()
    taken = torch.tensor([time.perf_counter() - begun])
    dist.all_reduce(taken, op=dist.ReduceOp.MAX)
    return 1e3 * taken.item() / count


def measure(workload: Workload, rounds: int, rank: int) -> Iterator[Row]:
    """Yield a row for each variant."""
    draws = np.random.default_rng(rank)
    drawn = {"x": draws.normal(size=(BATCH, workload.width)), "y": draws.normal(size=(BATCH, 10))}
    batch = {name: torch.tensor(array, dtype=torch.float32) for name, array in drawn.items()}
    steps = {name: make(workload, batch) for name, make in VARIANTS.items()}
    count = max(1, min(50, int(LAP / max(time_steps(step, 5) for step in steps.values() for _ in range(2)))))
    taken: dict[str, list[float]] = {name: [] for name in steps}
    order, shuffled = list(steps), random.Random(0)
    for _ in range(rounds):
        shuffled.shuffle(order)
        for name in order:
            taken[name].append(time_steps(steps[name], count))
    for name, laps in taken.items():
        ratios = sorted(lap / base for lap, base in zip(laps, taken[BASELINE], strict=True))
        of_ddp = [statistics.median(ratios), ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]]
        yield {"step": workload.name, "variant": name, "ms": statistics.median(laps), "of DDP": of_ddp}


def show(row: Row) -> str:
    """Return the line of a variant."""
    ratio, low, high = row["of DDP"]
    return f"| {row['step']} | {row['variant']} | {row['ms']:.2f} | {ratio:.3f} | {low:.2f} - {high:.2f} |"


def run(rank: int, rounds: int, folder: str, path: Path | None) -> None:
    """Measure all workloads as one of the processes; the first prints the table."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    rows = (row for workload in WORKLOADS for row in measure(workload, rounds, rank))
    if rank == 0:
        print("| step | variant | ms | of DDP | p10 - p90 |\n|---|---|---|---|---|", flush=True)
        report(rows, show, path, rounds)
    else:
        list(rows)
    dist.destroy_process_group()


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    add_json(parser)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run, args=(given.rounds, folder, given.json), nprocs=2)


if __name__ == "__main__":
    main()
