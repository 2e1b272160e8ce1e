"""Ranges: what the numbers of a tensor are like, in a line that a report can show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from runtime.support.findings import note_of, share_text, statistics_text


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in a value: itself, or those of a set of gradients, where some may be missing."""
    if isinstance(value, torch.Tensor):
        yield value.detach()
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from tensors_in(each)


def fault_of(value: Any) -> str:
    """Return ``nan`` where a value holds one, else ``inf`` where it holds one (of either sign), else nothing."""
    faults = {find_fault(tensor) for tensor in tensors_in(value)}
    return next((fault for fault in ("nan", "inf") if fault in faults), "")


def find_fault(tensor: torch.Tensor) -> str:
    """Return ``nan``, ``inf`` or nothing for one tensor; whole numbers are always finite."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return ""
    tensor = tensor.coalesce().values() if tensor.is_sparse else tensor
    if bool(torch.isfinite(tensor).all()):
        return ""
    return "nan" if bool(torch.isnan(tensor).any()) else "inf"


def first_row(value: Any) -> str:
    """Return where along the first axis a tensor is not finite for the first time; nothing for a single number."""
    tensor = next(tensors_in(value))
    if tensor.ndim == 0:
        return ""
    rows = (~torch.isfinite(tensor)).reshape(tensor.shape[0], -1).any(dim=1).nonzero()
    return f", first in row {int(rows[0])}"


def range_of(name: str, value: Any) -> str:
    """Return ``image: float32 [8, 4], min 0, max 1, mean 0.31, 2 of 32 nan (6.2 %)``; statistics are of finite numbers.

    Numbers of a complex value are taken by their size. A set of tensors is described as one.
    """
    parts = list(tensors_in(value))
    if not parts:
        return f"{name}: {type(value).__name__}"
    kind = str(parts[0].dtype).removeprefix("torch.")
    extent = f"{list(parts[0].shape)}" if isinstance(value, torch.Tensor) else f"in {len(parts)} tensors"
    numbers = torch.cat([plain_numbers(each) for each in parts])
    return ", ".join((f"{name}: {kind} {extent}", *statistics_of(numbers), *shares_of(numbers)))


def plain_numbers(tensor: torch.Tensor) -> torch.Tensor:
    """Return the numbers of a tensor in one row, on the host in double precision."""
    tensor = tensor.coalesce().values() if tensor.is_sparse else tensor
    return (tensor.abs() if tensor.is_complex() else tensor).flatten().to("cpu").double()


def statistics_of(numbers: torch.Tensor) -> Iterator[str]:
    """Yield minimum, maximum and mean of what is finite."""
    finite = numbers[torch.isfinite(numbers)]
    if finite.numel():
        yield statistics_text(finite.numel(), float(finite.min()), float(finite.max()), float(finite.mean()))


def shares_of(numbers: torch.Tensor) -> Iterator[str]:
    """Yield how many of some numbers are nan or inf, where some are."""
    for fault, found in (("nan", torch.isnan(numbers)), ("inf", torch.isinf(numbers))):
        count = int(found.sum())
        if count:
            yield str(float(numbers)) if numbers.numel() == 1 else share_text(fault, count, numbers.numel())


def ranges_of(title: str, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return one note with a line per value under a title; none where there are no values."""
    return note_of(title, [range_of(name, value) for name, value in values.items()])
