"""Transforms of gradient sets beyond clipping by one number: by unit, per parameter, projections, noise."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch

from runtime.backends.torch.library.kernels import (
    TensorList,
    foreach_add,
    foreach_mul,
    foreach_norm,
    foreach_norms,
    foreach_scale,
)


def clip_each(gradients: TensorList, norm: float, eps: float = 0.0) -> tuple[torch.Tensor, ...]:
    """Return every gradient times min(1, norm / (||g|| + eps)), the norm taken over that one gradient."""
    factors = [(norm / (length + eps)).clamp(max=1.0) for length in foreach_norms(gradients)]
    return foreach_mul(gradients, factors)


def clip_agc(
    gradients: TensorList, weights: TensorList, clipping: float = 0.01, eps: float = 1e-3, axis: int = 0
) -> tuple[torch.Tensor, ...]:
    """Return the gradients, each unit's at most clipping * max(||w||, eps) long (Brock et al. 2021, equation 3).

    A unit is one index along ``axis``, in vectors and numbers the whole tensor. The weights count as constants.
    """
    return tuple(
        clip_units(gradient, clipping * unit_norm(weight.detach(), axis).clamp(min=eps), axis)
        for gradient, weight in zip(gradients, weights, strict=True)
    )


def clip_units(gradient: torch.Tensor, longest: torch.Tensor, axis: int) -> torch.Tensor:
    """Return a gradient whose units are at most so long."""
    length = unit_norm(gradient, axis)
    is_long = length > longest
    return gradient * torch.where(is_long, longest / torch.where(is_long, length, 1.0), 1.0)


def unit_norm(x: torch.Tensor, axis: int) -> torch.Tensor:
    """Return the Euclidean norm of every unit, with axes of size 1 for what it goes over."""
    over = unit_axes(x, axis) if x.ndim > 1 else None
    return torch.linalg.vector_norm(x, dim=over, keepdim=True)


def unit_axes(x: torch.Tensor, axis: int) -> tuple[int, ...]:
    """Return the axes that a unit spans: all but one."""
    return tuple(each for each in range(x.ndim) if each != axis % x.ndim)


def scale_set(gradients: TensorList, factor: float) -> tuple[torch.Tensor, ...]:
    """Return the gradients times a factor."""
    return foreach_mul(gradients, factor)


def count_elements(gradients: TensorList) -> int:
    """Return how many numbers a set has."""
    return sum(each.numel() for each in gradients)


def add_noise(gradients: TensorList, noise: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the gradients with one element of the noise added to each of theirs, in order."""
    parts = noise.split([each.numel() for each in gradients])
    shaped = [part.reshape(each.shape).to(each.dtype) for part, each in zip(parts, gradients, strict=True)]
    return foreach_add(gradients, shaped)


def centralize(gradients: TensorList, axis: int = 0) -> tuple[torch.Tensor, ...]:
    """Return the gradients of matrices and larger tensors with mean 0 in every unit (Yong et al. 2020)."""
    return tuple(each - each.mean(unit_axes(each, axis), keepdim=True) if each.ndim > 1 else each for each in gradients)


def normalize_set(gradients: TensorList) -> tuple[torch.Tensor, ...]:
    """Return the gradients divided by max(||g||, 1e-12), the norm taken over the whole set."""
    return foreach_scale(gradients, foreach_norm(gradients).clamp(min=1e-12).reciprocal())


def normalize_each(gradients: TensorList) -> tuple[torch.Tensor, ...]:
    """Return every gradient divided by max(||g||, 1e-12), the norm taken over that one gradient."""
    return foreach_mul(gradients, [length.clamp(min=1e-12).reciprocal() for length in foreach_norms(gradients)])


def set_product(first: TensorList, second: TensorList) -> torch.Tensor:
    """Return the inner product of two sets, over all elements of all gradients."""
    return torch.stack([(a * b).sum() for a, b in zip(first, second, strict=True)]).sum()


def project(first: TensorList, second: TensorList) -> tuple[torch.Tensor, ...]:
    """Return first - min(0, <first, second>) / <second, second> * second; first where the second is zero."""
    square = set_product(second, second)
    share = set_product(first, second).clamp(max=0.0) / torch.where(square > 0, square, 1.0)
    return foreach_add(first, foreach_scale(second, -share))


def pcgrad(sets: Sequence[TensorList], order: torch.Tensor | None = None) -> tuple[torch.Tensor, ...]:
    """Return the sum of sets, each without what is against the others (Yu et al. 2020, algorithm 1).

    Each is projected against the others as they came, in rising order of its row of ``order``, by default as listed.
    Projections only mix the sets: it is done on the shares of each in each, by the inner products of all pairs.
    """
    count = len(sets)
    products = torch.stack([torch.stack([set_product(a, b) for b in sets]) for a in sets])
    own = torch.eye(count, dtype=products.dtype, device=products.device)
    turns = own.expand(count, count, count) if order is None else own[order.argsort(dim=1, stable=True)]
    squares, shares = products.diagonal(), own
    for turn in turns.unbind(1):
        other = turn * (1.0 - own)  # a set is not projected against itself
        square = other @ squares
        against = ((shares @ products) * other).sum(1).clamp(max=0.0) / torch.where(square > 0, square, 1.0)
        shares = shares - against[:, None] * other
    parts = [foreach_scale(each, share) for each, share in zip(sets, shares.sum(0).unbind(), strict=True)]
    *_, total = accumulate(parts, foreach_add)
    return total


def adapted(
    weights: TensorList, gradients: Sequence[torch.Tensor | None], rate: float | torch.Tensor | Sequence[Any]
) -> tuple[torch.Tensor, ...]:
    """Return weights - rate * gradients, with one rate or one for each; without a gradient a weight stays as it is.

    The result shares no memory with the weights.
    """
    rates: Sequence[Any] = [rate] * len(weights) if isinstance(rate, (int, float, torch.Tensor)) else rate
    return tuple(
        weight.clone() if gradient is None else weight - each * gradient
        for weight, gradient, each in zip(weights, gradients, rates, strict=True)
    )
