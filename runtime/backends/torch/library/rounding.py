"""Averages whose numbers are those of a narrower type: rounded after each write, to the nearest or at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

DIGITS: Mapping[torch.dtype, tuple[int, int]] = {
    torch.float32: (23, -126),
    torch.bfloat16: (7, -119),
    torch.float16: (10, -14),
}
"""The binary digits after the point, and the exponent below which numbers come no closer (of bfloat16 as float32 can
hold half of a step)."""


@torch.no_grad()
def round_to(tensors: Sequence[torch.Tensor], dtype: torch.dtype) -> None:
    """Make every number the nearest one of a type."""
    for tensor in tensors:
        tensor.copy_(tensor.to(dtype))


@torch.no_grad()
def round_at_random(tensors: Sequence[torch.Tensor], dtype: torch.dtype, random: Any, op: str) -> None:
    """Make every number one of its two neighbours of a type, the nearer the likelier: it stays the same in the mean."""
    digits, least = DIGITS[dtype]
    for index, tensor in enumerate(tensors):
        if tensor.dtype == dtype:
            continue
        exponents = torch.frexp(tensor).exponent - 1
        step = torch.ldexp(torch.ones_like(tensor), exponents.clamp(min=least) - digits)
        drawn = random.uniform(f"{op}.{index}", tuple(tensor.shape))
        tensor.copy_((torch.floor(tensor / step + drawn) * step).to(dtype))
