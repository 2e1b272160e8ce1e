"""Calls that torch lacks in this form."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F


def interpolate(a: torch.Tensor, b: torch.Tensor, weight: torch.Tensor | float) -> torch.Tensor:
    """Return a + weight * (b - a)."""
    return a + weight * (b - a)


def minimum(a: torch.Tensor | float, b: torch.Tensor | float) -> torch.Tensor:
    """Return the lesser of a tensor and a number; where they are equal, half of the gradient passes."""
    return torch.minimum(*as_tensors(a, b))


def maximum(a: torch.Tensor | float, b: torch.Tensor | float) -> torch.Tensor:
    """Return the greater of a tensor and a number; where they are equal, half of the gradient passes."""
    return torch.maximum(*as_tensors(a, b))


def as_tensors(a: torch.Tensor | float, b: torch.Tensor | float) -> Iterator[torch.Tensor]:
    """Yield two operands as tensors, a number as one of their type; a device fills it without being waited for."""
    dtype = torch.result_type(a, b)
    device = next(x.device for x in (a, b) if isinstance(x, torch.Tensor))
    for x in (a, b):
        yield x if isinstance(x, torch.Tensor) else torch.full((), x, dtype=dtype, device=device)


def split(x: torch.Tensor, sections: int | tuple[int, ...], axis: int = 1) -> tuple[torch.Tensor, ...]:
    """Return a tensor cut along an axis: into equal parts, or parts of the sizes listed."""
    if isinstance(sections, int):
        size, rest = divmod(x.shape[axis], sections)
        if rest:
            raise ValueError(f"{x.shape[axis]} elements along axis {axis} cannot be cut into {sections} equal parts")
        return x.split(size, axis)
    return x.split(sections, axis)


def split_rows(x: torch.Tensor, count: int) -> tuple[torch.Tensor, ...]:
    """Return near-equal parts of the rows, the larger ones first; raise ValueError for fewer rows than parts."""
    if x.shape[0] < count:
        raise ValueError(f"{x.shape[0]} rows cannot be cut into {count} parts")
    return torch.tensor_split(x, count)


def cut(x: torch.Tensor, start: int = 0, stop: int | None = None, axis: int = 1) -> torch.Tensor:
    """Return the elements from ``start`` up to, not including, ``stop`` along an axis; negative ones from the end."""
    index = [slice(None)] * x.ndim
    index[axis] = slice(start, stop)
    return x[tuple(index)]


def topk(x: torch.Tensor, k: int, axis: int = -1, largest: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the k greatest elements along an axis, or the least, in order, and their indices; the first of equal ones.

    ``torch.topk`` leaves open which of equal ones it takes.
    """
    values, indices = torch.sort(x, dim=axis, descending=largest, stable=True)
    return values.narrow(axis, 0, k), indices.narrow(axis, 0, k)


def one_hot(x: torch.Tensor, classes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return 1 at the class number, 0 elsewhere, along a new last axis."""
    return F.one_hot(x.long(), classes).to(dtype)


def where(condition: torch.Tensor, a: float, b: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return the number a where the condition holds, else b; a device fills them without being waited for."""
    first, second = (torch.full((), x, dtype=dtype, device=condition.device) for x in (a, b))
    return torch.where(condition, first, second)


def logsumexp(x: torch.Tensor, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> torch.Tensor:
    """Return log(sum(exp(x))) over axes, all by default, which torch wants listed."""
    return torch.logsumexp(x, tuple(range(x.ndim)) if axis is None else axis, keepdims)
