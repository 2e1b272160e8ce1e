"""What a look at a model must leave as it was: random states, and the compilation of models by torch.compile."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch


@contextmanager
def untouched() -> Iterator[None]:
    """Restore the global random states of torch (CPU and CUDA), NumPy and Python on the way out.

    Models that were given to torch.compile run as plain Python inside.
    """
    numpy = sys.modules.get("numpy")
    ours = random.getstate()
    theirs = None if numpy is None else numpy.random.get_state()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices=devices), _uncompiled():
            yield
    finally:
        random.setstate(ours)
        if numpy is not None:
            numpy.random.set_state(theirs)


def _uncompiled() -> AbstractContextManager[object]:
    """Return a context without compilation: torch never tries again to compile code that it met under our observers."""
    is_used = "torch._dynamo" in sys.modules  # torch.compile imports it; for us alone it would cost a second
    return torch.compiler.set_stance("force_eager") if is_used else nullcontext()
