"""Trains the cases in real processes with gloo, and writes what each of them found: ``python -m ... FOLDER``."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch.distributed as dist

from tests.processes.cases import ALONE, CASES, RUNS, Run, make_step, train


def work(run: Run, rank: int, folder: Path) -> None:
    """Train the cases of a run as one of its processes."""
    meet = f"file://{folder}/meet.{run.kind}.{run.world}"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=run.world)
    for name in run.names:
        case = {**CASES, **ALONE}[name]
        found = dict(train(case, make_step(case, run.kind), run.rows, rank, run.world))
        np.savez(run.path(folder, name, rank), allow_pickle=False, **found)
    dist.destroy_process_group()


def main(folder: Path, runs: Sequence[Run] = RUNS) -> int:
    """Fork the processes of every run: all share one import of PyTorch. Return how many failed."""
    failed = 0
    for run in runs:
        children: list[int] = []
        for rank in range(run.world):
            if child := os.fork():
                children.append(child)
                continue
            try:
                work(run, rank, folder)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        failed += sum(os.waitpid(child, 0)[1] != 0 for child in children)
    return failed


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
