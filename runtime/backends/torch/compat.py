"""Private parts of torch, behind one door: written for torch 2.11 and newer."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

OLDEST = (2, 11)
"""The first version with everything that is used here, and in the kernels of the library."""
__all__ = [
    "FakeTensorMode",
    "TorchDispatchMode",
    "copying",
    "find_written",
    "is_alias",
    "is_batch_norm",
    "is_draw",
    "is_supported",
    "quiet",
]


def is_supported() -> bool:
    """Return whether this torch is new enough."""
    major, minor = torch.__version__.split(".")[:2]
    return (int(major), int(minor)) >= OLDEST


def is_batch_norm(module: nn.Module) -> bool:
    """Return whether a module normalises over the batch, whatever its rank and however it synchronises."""
    return isinstance(module, nn.modules.batchnorm._BatchNorm)


def copying(mode: FakeTensorMode) -> AbstractContextManager[object]:
    """Return a context in which ``copy.deepcopy`` makes fake tensors of real ones."""
    return FakeCopyMode(mode)


LOOK = "aten::_amp_foreach_non_finite_check_and_unscale_"
"""How the library looks at gradients: it writes them as they are, times one."""


def find_written(operation: Any, positional: tuple[object, ...], named: Mapping[str, object]) -> Iterator[torch.Tensor]:
    """Yield the tensors that an operation writes into, of its arguments, where anything may change in them."""
    if operation._schema.name == LOOK:
        return
    for number, argument in enumerate(operation._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = positional[number] if number < len(positional) else named.get(argument.name)
            for each in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(each, torch.Tensor):
                    yield each


def is_alias(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors share their memory."""
    return torch._C._is_alias_of(one, other)  # pyright: ignore[reportAttributeAccessIssue]


def is_draw(target: object) -> bool:
    """Return whether the target of a node of a graph is an operation that draws, or does so in training."""
    return isinstance(target, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in target.tags


@contextmanager
def quiet() -> Iterator[None]:
    """Keep warnings and logs away from the terminal: what fails meanwhile is told by its diagnostic."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
