"""Parameters that are currently frozen: no gradient is taken for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def unfrozen_gradients(
    take: Callable[..., Sequence[Any]],
    loss: torch.Tensor,
    targets: Sequence[torch.Tensor],
    frozen: Sequence[int],
    **options: Any,
) -> tuple[Any, ...]:
    """Return the gradients of a loss as they are taken, and None for the targets at some places."""
    kept = [at for at in range(len(targets)) if at not in frozen]
    found = take(loss, [targets[at] for at in kept], **options) if kept else ()
    by_place = dict(zip(kept, found, strict=True))
    return tuple(by_place.get(at) for at in range(len(targets)))
