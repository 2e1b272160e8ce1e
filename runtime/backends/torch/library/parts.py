"""Micro-batches: the near-equal parts of a batch, and which share of its rows each has."""

from __future__ import annotations

import torch


def parts(x: torch.Tensor, count: int, axis: int = 0) -> tuple[torch.Tensor, ...]:
    """Return near-equal parts along the axis of the batch, the larger ones first."""
    return torch.tensor_split(x, count, dim=axis)


def row_shares(x: torch.Tensor, count: int, axis: int = 0) -> tuple[float, ...]:
    """Return the share of the rows that each part has; raise ValueError for fewer rows than parts."""
    rows = x.shape[axis]
    if rows < count:
        raise ValueError(f"a batch of {rows} cannot be split into {count} micro-batches")
    return tuple(((rows + count - 1 - part) // count) / rows for part in range(count))


def weigh(value: torch.Tensor, share: float) -> torch.Tensor:
    """Return what a part adds to a mean over the batch."""
    return value * share
