"""Counts how often a step waits for its device: reads of tensors into Python, on either backend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def counted(backend: str) -> Iterator[list[str]]:
    """Return a context that notes by name every read of a tensor from the host."""
    seen: list[str] = []
    with (_torch if backend == "torch" else _tensorflow)(seen):
        yield seen


@contextmanager
def _torch(seen: list[str]) -> Iterator[None]:
    """Note the methods of tensors that give Python's numbers or arrays."""
    import torch
    from torch.overrides import TorchFunctionMode

    names = ("item", "tolist", "numpy", "cpu", "nonzero", "__bool__", "__int__", "__float__", "__index__", "equal")
    reading = {getattr(torch.Tensor, name): name for name in names}

    class Reads(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function in reading:
                seen.append(reading[function])
            return function(*args, **(kwargs or {}))

    with Reads():
        yield


@contextmanager
def _tensorflow(seen: list[str]) -> Iterator[None]:
    """Note what eager tensors give to NumPy, through which every read of theirs goes."""
    import tensorflow as tf

    kind: Any = type(tf.constant(0)).__mro__[1]
    kept = kind._numpy
    kind._numpy = lambda tensor: (seen.append("numpy"), kept(tensor))[1]
    try:
        yield
    finally:
        kind._numpy = kept
