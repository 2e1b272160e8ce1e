"""Gaps in the gradients of an optimizer in groups."""

from __future__ import annotations

import torch

from runtime.backends.torch.library.grouped import Grouped, changed
from runtime.backends.torch.library.missing import MaybeGradients, step_present


@torch.no_grad()
def apply_present_grouped(optimizer: Grouped, gradients: MaybeGradients) -> None:
    """Step the parameters of every group that have a gradient; of the others nothing changes but the one count."""
    for name, schedule in optimizer.schedules.items():
        optimizer.options[name] = schedule(optimizer.applied)
    for (places, changes), part in zip(optimizer.shares, optimizer.parts, strict=True):
        now = {name: optimizer.options.get(name, value) for name, value in part.options.items()}
        part.options = changed(now, changes, optimizer.applied)
        part.applied = optimizer.applied
        step_present(part, [gradients[at] for at in places])
    optimizer.applied += 1
