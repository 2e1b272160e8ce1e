"""Random states: what a dry run draws must not be missing from what follows."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def untouched() -> Iterator[None]:
    """Restore the global random states of torch (CPU and CUDA), NumPy and Python on the way out."""
    numpy = sys.modules.get("numpy")
    ours = random.getstate()
    theirs = None if numpy is None else numpy.random.get_state()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(ours)
        if numpy is not None:
            numpy.random.set_state(theirs)
