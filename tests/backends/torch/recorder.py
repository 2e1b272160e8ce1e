"""A recorder for tensors of the host, which follows the rules of CUDA graphs.

What is recorded are operations with their tensors, hence with their memory, and with the numbers of Python that they
were given. Recording changes nothing. Numbers of tensors cannot be read meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from runtime.backends.torch.compat import find_written

READS = ("aten::_local_scalar_dense", "aten::nonzero", "aten::equal", "aten::is_nonzero")
UNANNOUNCED = "aten::native_batch_norm"
"""Writes into running statistics, which its schema does not say."""
DRAWS = "a generator of random numbers is not part of the recording"


class Refused(RuntimeError):
    """An operation that waits for the device, or that no recording repeats."""


class Recording(TorchDispatchMode):
    """Records operations."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, list[Any]]] = []
        self.before: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, so that there is a result with a place, and keep what it overwrites."""
        named = kwargs or {}
        if operation._schema.name in READS:
            raise Refused(f"{operation} waits for the device")
        if operation.namespace == "keyed" or torch.Tag.nondeterministic_seeded in operation.tags:
            raise Refused(f"{operation}: {DRAWS}")
        hidden = tree_leaves(args) if operation._schema.name == UNANNOUNCED else ()
        for each in (*find_written(operation, args, named), *hidden):
            memory = each.untyped_storage() if isinstance(each, torch.Tensor) else None
            if memory is not None and memory.data_ptr() not in self.before:
                whole = torch.empty(0, dtype=torch.uint8).set_(memory)
                self.before[memory.data_ptr()] = whole, whole.clone()
        found = operation(*args, **named)
        given, results = tree_map_only(torch.Tensor, torch.Tensor.detach, ((args, named), tree_leaves(found)))
        self.calls.append((operation, *given, results))  # aliases: later operations may give tensors another shape
        return found

    def undo(self) -> None:
        """Leave memory as it was."""
        for whole, before in self.before.values():
            whole.copy_(before)

    @torch.no_grad()
    def replay(self) -> None:
        """Repeat all operations on the same memory; autograd does not learn of it."""
        tensors = [each for call in self.calls for each in tree_leaves(call) if isinstance(each, torch.Tensor)]
        with torch.autograd._unsafe_preserve_version_counter(tuple(tensors)):
            for operation, args, named, results in self.calls:
                for result, again in zip(results, tree_leaves(operation(*args, **named)), strict=True):
                    if isinstance(result, torch.Tensor) and result.data_ptr() != again.data_ptr():
                        result.copy_(again)


class HostRecorder:
    """Records what tensors of the host are used for."""

    def __init__(self) -> None:
        self.rehearsed = self.recorded = 0

    def rehearse(self, run: Callable[[], Sequence[Any]]) -> tuple[Sequence[Any], str]:
        """Run."""
        self.rehearsed += 1
        return run(), ""

    def record(self, run: Callable[[], Sequence[Any]]) -> tuple[Callable[[], None], Sequence[Any]]:
        """Record a run."""
        recording = Recording()
        try:
            with recording:
                outputs = run()
        finally:
            recording.undo()
        self.recorded += 1
        return recording.replay, outputs
