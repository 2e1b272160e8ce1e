"""A device that is not there: its tensors have a place, shapes and types, but no numbers.

They follow the rules of a GPU: a tensor without axes may be on the host where others are on the device, unless it is
joined with them or a fused kernel reads it.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

DEVICE = "meta"
FUSED = "aten::_fused"
STRICT = ("aten::cat", "aten::stack", FUSED)
"""Operations of which every tensor must be on the device."""
COPIES = {"aten::_to_copy": 0, "aten::copy_": 1, "aten::_foreach_copy_": None}
"""Operations that may copy from one device to another, and the place of what they copy."""
READS = ("aten::_local_scalar_dense", "aten::equal", "aten::is_nonzero")


class Misplaced(RuntimeError):
    """Tensors of two devices met."""


class _Operations(TorchDispatchMode):
    """Checks where the tensors of every operation are, and notes what it waits for."""

    def __init__(self, seen: list[str]) -> None:
        super().__init__()
        self.seen = seen

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation; what is read is true, as if all gradients were finite, or a number."""
        name, named = operation.name().partition(".")[0], kwargs or {}
        if name in READS:
            if args[0].device.type == DEVICE:
                self.seen.append(f"{name} in {find_place()}")
            return 0.5 if args[0].is_floating_point() else args[0].dtype == torch.bool or 1
        if name not in COPIES:
            check_places(name, [each for each in tree_leaves((args, named)) if isinstance(each, torch.Tensor)])
        if name.startswith(FUSED):
            return None  # it writes numbers, of which there are none
        found, place = operation(*args, **named), COPIES.get(name)
        is_async = named.get("non_blocking") or (name == "aten::copy_" and args[2:3] == (True,))
        if place is not None and args[place].device.type != found.device.type and not is_async:
            self.seen.append(f"a copy to {found.device.type} in {find_place()}")
        return found


class _Makers(TorchFunctionMode):
    """Notes tensors that are made of Python's numbers on the device: these are copied there, and the host waits."""

    def __init__(self, seen: list[str]) -> None:
        super().__init__()
        self.seen = seen

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch."""
        named = kwargs or {}
        makes = function in (torch.tensor, torch.as_tensor) and not isinstance(args[0], torch.Tensor)
        if makes and torch.device(named.get("device") or "cpu").type == DEVICE:
            self.seen.append(f"a copy to {DEVICE} in {find_place()}")
        return function(*args, **named)


def check_places(name: str, tensors: list[torch.Tensor]) -> None:
    """Raise Misplaced where an operation is given tensors of two devices that it cannot take together."""
    are_strict = name.startswith(STRICT)
    if len({each.device.type for each in tensors if each.dim() or are_strict}) > 1:
        raise Misplaced(f"{name} takes {[f'{each.device.type} {tuple(each.shape)}' for each in tensors]}")


def find_place() -> str:
    """Return the innermost functions of the library that run."""
    frames = [each.name for each in traceback.extract_stack() if re.search("emitted|library", each.filename)]
    return " > ".join(frames[-2:])


@contextmanager
def awaited() -> Iterator[list[str]]:
    """Note what the host waits for inside."""
    seen: list[str] = []
    with _Operations(seen), _Makers(seen):
        yield seen


def moved(module: nn.Module, device: Any = None, dtype: Any = None) -> nn.Module:
    """Move a module as `Module.to` does, which cannot replace fake parameters; those that are shared stay so."""
    device, dtype = (None, device) if isinstance(device, torch.dtype) else (device, dtype)
    known: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
    for part in module.modules():
        for held in (part._parameters, part._buffers):
            for name, old in held.items():
                if old is not None and id(old) not in known:
                    new = old.detach().to(device, dtype if old.is_floating_point() else None)
                    is_parameter = isinstance(old, nn.Parameter)
                    known[id(old)] = nn.Parameter(new, old.requires_grad) if is_parameter else new, old
                held[name] = old if old is None else known[id(old)][0]
    return module


@contextmanager
def elsewhere() -> Iterator[None]:
    """Make and run steps on the device inside."""
    with pytest.MonkeyPatch.context() as patch, FakeTensorMode(allow_non_fake_inputs=True):
        patch.setattr(nn.Module, "to", moved)
        yield


def has_fused(parameters: list[torch.Tensor], kernel: str) -> bool:
    """Return whether the device steps all parameters with one kernel."""
    return bool(kernel) and len({each.dtype for each in parameters}) == 1


def place(batch: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return a batch of arrays on the device, in float32 where it is of floating point."""
    pairs = ((name, torch.from_numpy(value)) for name, value in batch.items())
    return {name: each.to(DEVICE, torch.float32 if each.is_floating_point() else None) for name, each in pairs}
