"""Transforms of gradient sets: each takes a tuple of gradients and returns a new one."""

from __future__ import annotations

import torch

from runtime.backends.torch.library.kernels import (
    TensorList,
    foreach_add,
    foreach_clamp,
    foreach_mix,
    foreach_mul,
    foreach_norm,
    foreach_scale,
    foreach_sub,
)


def clip_norm(gradients: TensorList, norm: float, eps: float = 0.0) -> tuple[torch.Tensor, ...]:
    """Return the gradients times min(1, norm / (||g|| + eps)), the norm taken over the whole set."""
    return foreach_scale(gradients, (norm / (foreach_norm(gradients) + eps)).clamp(max=1.0))


def clip_value(gradients: TensorList, value: float) -> tuple[torch.Tensor, ...]:
    """Return the gradients with every element kept between ``-value`` and ``value``."""
    return foreach_clamp(gradients, value)


def add_sets(first: TensorList, *others: TensorList) -> TensorList:
    """Return the sum of gradient sets over the same parameters."""
    for other in others:
        first = foreach_add(first, other)
    return first


def sub_sets(first: TensorList, second: TensorList) -> TensorList:
    """Return the difference of two gradient sets over the same parameters."""
    return foreach_sub(first, second)


def mul_sets(first: TensorList, *others: TensorList | torch.Tensor, factors: tuple[float, ...] = ()) -> TensorList:
    """Return the product of gradient sets and numbers, element by element."""
    for other in (*others, *factors):
        first = foreach_mul(first, other)
    return first


def lerp_sets(
    first: TensorList,
    second: TensorList,
    weight: torch.Tensor | None = None,
    factors: tuple[float, ...] = (),
) -> tuple[torch.Tensor, ...]:
    """Return first + weight * (second - first); the weight may be written as a number."""
    return foreach_mix(first, second, *factors) if weight is None else foreach_mix(first, second, weight)
