"""Groups of forked processes: all share one import of PyTorch."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist


def fork(world: int, meeting: Path, work: Callable[[int], None]) -> int:
    """Run a function in each of some processes, which meet at a file, by rank; return how many failed."""
    children: list[int] = []
    for rank in range(world):
        if child := os.fork():
            children.append(child)
            continue
        try:
            found = {"init_method": f"file://{meeting}", "rank": rank, "world_size": world}
            dist.init_process_group("gloo", timeout=timedelta(seconds=60), **found)
            work(rank)
            dist.destroy_process_group()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)
