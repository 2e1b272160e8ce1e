"""Constraints: what parameters are made to satisfy right after they were stepped, in place."""

from __future__ import annotations

from collections.abc import Callable

import torch

from runtime.backends.torch.library.kernels import foreach_clamp_


@torch.no_grad()
def clip_weights(parameters: list[torch.Tensor], low: float, high: float) -> None:
    """Keep every element between ``low`` and ``high``; where these cross, all are ``high``."""
    foreach_clamp_(parameters, low, high)


@torch.no_grad()
def make_non_negative(parameters: list[torch.Tensor]) -> None:
    """Make elements below 0 to 0."""
    foreach_clamp_(parameters, 0.0, float("inf"))


@torch.no_grad()
def make_unit_norm(parameters: list[torch.Tensor], axis: tuple[int, ...] | None = None) -> None:
    """Divide by the norm over axes, all but the first by default; what is 0 stays 0."""
    for parameter in parameters:
        norm = unit_norms(parameter, axis)
        parameter.div_(torch.where(norm > 0, norm, 1.0))


@torch.no_grad()
def limit_norm(parameters: list[torch.Tensor], norm: float, axis: tuple[int, ...] | None = None) -> None:
    """Shorten to a norm over axes, all but the first by default, what is longer."""
    for parameter in parameters:
        found = unit_norms(parameter, axis)
        parameter.mul_(torch.where(found > norm, norm / found, 1.0))


def unit_norms(parameter: torch.Tensor, axis: tuple[int, ...] | None) -> torch.Tensor:
    """Return the Euclidean norms over axes: by default those of the units, one per place of the first axis."""
    over = tuple(range(min(1, parameter.ndim - 1), parameter.ndim)) if axis is None else axis
    return torch.linalg.vector_norm(parameter, dim=over or None, keepdim=True)


@torch.no_grad()
def project_onto(parameters: list[torch.Tensor], function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Replace every parameter by what a function makes of it; raise ValueError where that has another shape."""
    for parameter in parameters:
        made = function(parameter)
        if made.shape != parameter.shape:
            raise ValueError(f"the constraint made {list(made.shape)} of {list(parameter.shape)}")
        parameter.copy_(made)
