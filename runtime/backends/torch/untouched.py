"""State that observing a model must not change: buffers, random states, and caches of torch.compile."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext

import torch
from torch import nn
from torch.nn.parameter import is_lazy


@contextmanager
def untouched() -> Iterator[None]:
    """Restore the global random states of torch (CPU and CUDA), NumPy and Python on the way out.

    Models compiled by torch.compile run as plain Python inside.
    """
    numpy_random = sys.modules.get("numpy.random")
    ours = random.getstate()
    theirs = None if numpy_random is None else numpy_random.get_state()
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    # torch must never try to compile code again that it met under observers; importing it only for this costs a second.
    is_compiling = "torch._dynamo" in sys.modules
    uncompiled = torch.compiler.set_stance("force_eager") if is_compiling else nullcontext()
    try:
        with torch.random.fork_rng(devices=devices), uncompiled:
            yield
    finally:
        random.setstate(ours)
        if numpy_random is not None:
            numpy_random.set_state(theirs)
        elif "numpy.random" in sys.modules:  # the model has imported it: as it was then
            sys.modules["numpy.random"].seed()


@contextmanager
def unwritten(models: Mapping[str, nn.Module]) -> Iterator[None]:
    """Restore on the way out the buffers of models that were written; a copy may still write into its original.

    A lambda, or a function of torch.compile, that a module keeps as an attribute still uses the original.
    """
    buffers = [buffer for model in models.values() for buffer in model.buffers() if not is_lazy(buffer)]
    before = [(buffer, buffer._version, buffer.detach().clone()) for buffer in buffers if not buffer.is_inference()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, version, value in before:
                if buffer._version != version:
                    buffer.copy_(value)
