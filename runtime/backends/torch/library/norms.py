"""Norms: how long the gradients of updates are, for those who ask when a step is over."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from runtime.backends.torch.library.kernels import foreach_norm


class Norms:
    """The norms of the gradients that updates were given last; reading them waits for the device, keeping does not."""

    def __init__(self, updates: Sequence[str]) -> None:
        self.kept: dict[str, torch.Tensor | None] = dict.fromkeys(updates)

    @torch.no_grad()
    def keep(self, update: str, *sets: Sequence[torch.Tensor | None]) -> None:
        """Measure the gradients of an update, over all elements of all its sets."""
        gradients = [gradient.detach() for each in sets for gradient in each if gradient is not None]
        self.kept[update] = foreach_norm(gradients) if gradients else torch.zeros(())

    def read(self) -> dict[str, float]:
        """Return what was measured, by update."""
        return {update: norm.item() for update, norm in self.kept.items() if norm is not None}
