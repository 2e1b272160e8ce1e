"""Trains the cases in real processes with gloo, and writes what each of them found: ``python -m ... FOLDER``."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

import numpy as np
import torch.distributed as dist

from tests.processes.cases import ALONE, CASES, RUNS, make_step, train


def run(rank: int, world: int, rows: int, names: tuple[str, ...], folder: Path) -> None:
    """Train some cases as one of several processes."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet.{world}", rank=rank, world_size=world)
    for name in names:
        case = {**CASES, **ALONE}[name]
        step = make_step(case, replicated=True)
        found = dict(train(case, step, rows, rank, world))
        np.savez(folder / f"{name}.{world}.{rank}.npz", allow_pickle=False, **found)
    dist.destroy_process_group()


def main(folder: Path) -> int:
    """Fork the processes of every run: all share one import of PyTorch. Return whether one failed."""
    failed = 0
    for world, rows, names in RUNS:
        children: list[int] = []
        for rank in range(world):
            if child := os.fork():
                children.append(child)
                continue
            try:
                run(rank, world, rows, names, folder)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        failed += sum(os.waitpid(child, 0)[1] != 0 for child in children)
    return failed


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
