"""Writes that follow another model: averages and copies, over lists of tensors resolved once."""

from __future__ import annotations

import torch

from runtime.backends.torch.library.kernels import foreach_copy, foreach_lerp, records_nothing


@records_nothing
def blend(target: list[torch.Tensor], source: list[torch.Tensor], decay: float) -> None:
    """Set every tensor of ``target`` to decay * target + (1 - decay) * source, in place."""
    if target:
        foreach_lerp(target, source, 1 - decay)


@torch.no_grad()
def blend_buffers(target: list[torch.Tensor], source: list[torch.Tensor], decay: float) -> None:
    """Average floating-point buffers like weights; copy the others, whose average would mean nothing."""
    for old, new in zip(target, source, strict=True):
        if old.is_floating_point():
            old.lerp_(new.to(old.dtype), 1 - decay)
        else:
            old.copy_(new)


@torch.no_grad()
def copy_into(target: list[torch.Tensor], source: list[torch.Tensor]) -> None:
    """Copy every tensor of ``source`` into its partner in ``target``."""
    if target:
        foreach_copy(target, source)


def floating(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the tensors of floating-point numbers."""
    return [each for each in tensors if each.is_floating_point()]


def whole_numbers(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the other tensors."""
    return [each for each in tensors if not each.is_floating_point()]
