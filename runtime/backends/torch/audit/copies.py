"""Copies of weights that the program keeps itself, and the averages that it makes of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from runtime.audit.trace import Mixture
from runtime.backends.torch.audit.log import Log
from runtime.backends.torch.audit.provenance import Copy
from runtime.backends.torch.audit.tensors import node_of

_COPYING = ("detach", "data.__get__", "clone", "to", "cpu", "cuda", "float", "double", "half", "bfloat16", "contiguous")
MULTIPLYING = ("mul", "__mul__", "__rmul__", "mul_", "__imul__")
DIVIDING = ("div", "__truediv__", "true_divide", "div_", "__itruediv__")
_ADDING = ("add", "__add__", "__radd__", "__iadd__", "add_", "sub", "__sub__", "__rsub__", "__isub__", "sub_")
_MIXING = (*_ADDING, "lerp", "lerp_")


def find_copy(log: Log, name: str, inputs: Sequence[torch.Tensor], result: torch.Tensor) -> Copy | None:
    """Return what a result is of a cell; note where one of earlier steps takes in the cell of now, without a graph."""
    if name not in (*_COPYING, *MULTIPLYING, *DIVIDING, *_MIXING, "copy_"):
        return None
    given = inputs[1:] if name == "copy_" else inputs
    found = [(each, _copy_of(log, each)) for each in given]
    if any(copy is None and each.dim() for each, copy in found) or log.cells.find(result):
        return None
    copies = [copy for _, copy in found if copy is not None]
    if len(copies) == 1 and name not in _MIXING:
        return copies[0]
    if len(copies) != 2 or name not in _MIXING or copies[0].cell != copies[1].cell or node_of(result) is not None:
        return None
    old, new = sorted(copies, key=lambda each: each.backwards)
    if old.backwards == new.backwards:
        return None
    log.mixtures += 1
    log.add(Mixture(place=log.place(), tensor=new.cell, number=log.mixtures, before=old.mixture))
    return new._replace(mixture=log.mixtures)


def _copy_of(log: Log, tensor: torch.Tensor) -> Copy | None:
    if isinstance(tensor, nn.Parameter):
        log.cells.add(tensor)
    cells = log.cells.find(tensor)
    if cells:
        return Copy(cells[0].number, log.backwards) if len(cells) == 1 else None
    return log.tags.of(tensor).copy
