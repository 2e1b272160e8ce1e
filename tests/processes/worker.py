"""Trains the cases in real processes with gloo, and writes what each of them found: ``python -m ... FOLDER``."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist

from tests.processes.cases import ALONE, CASES, RUNS, Run, make_step, train


@contextmanager
def counting() -> Generator[dict[str, list[int]]]:
    """Count the bytes that are handed to each collective inside, by its name, as if all floats were float32."""
    sent: dict[str, list[int]] = {}
    plain = {name: getattr(dist, name) for name in ("all_reduce", "all_gather", "broadcast")}

    def wrap(name: str) -> Callable[..., Any]:
        """Return a collective that is counted; what it sends is its last argument."""

        def call(*given: Any, **options: Any) -> Any:
            tensor = given[-1]
            sent.setdefault(name, []).append(tensor.numel() * (4 if tensor.is_floating_point() else tensor.itemsize))
            return plain[name](*given, **options)

        return call

    for name in plain:
        setattr(dist, name, wrap(name))
    try:
        yield sent
    finally:
        for name, function in plain.items():
            setattr(dist, name, function)


def work(run: Run, rank: int, folder: Path) -> None:
    """Train the cases of a run as one of its processes."""
    meet = f"file://{folder}/meet.{run.kind}.{run.world}"
    dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=run.world)
    for name in run.names:
        case = {**CASES, **ALONE}[name]
        step = make_step(case, run.kind)
        with counting() as sent:
            found = dict(train(case, step, run.rows, rank, run.world))
        counted = {f"sent by {call}": np.array(sizes) for call, sizes in sent.items()}
        np.savez(run.path(folder, f"{name}.sent", rank), allow_pickle=False, **counted)
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
