"""Windows of gradients of which some may be absent in some steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch


class OpenWindow:
    """What several steps gave, in float32 at least, and for how many rows it stands.

    A gradient that is absent in a step adds nothing to the sum, while its rows count: what comes out is the gradient of
    the mean over all rows. What was absent in every step is absent.
    """

    def __init__(self, parameters: Iterable[torch.Tensor], is_mean: bool = True) -> None:
        self.parameters, self.is_mean, self.is_open = list(parameters), is_mean, True
        self.totals: list[torch.Tensor | None] = []
        self.rows = 0

    @torch.no_grad()
    def add(self, gradients: Sequence[torch.Tensor | None], rows: int = 1) -> None:
        """Add the gradients that are there, each as often as it has rows."""
        before = self.totals or [None] * len(self.parameters)
        self.totals = [added(total, each, rows) for total, each in zip(before, gradients, strict=True)]
        self.rows += rows

    @torch.no_grad()
    def take(self, fresh: bool = True) -> tuple[torch.Tensor | None, ...]:
        """Return the mean over all rows, or the sum, and begin anew; not ``fresh``: this step added nothing."""
        totals, share = self.totals or [None] * len(self.parameters), self.rows if self.is_mean else 1
        self.totals, self.rows = [], 0
        pairs = zip(totals, self.parameters, strict=True)
        return tuple(None if total is None else (total / share).to(p.dtype) for total, p in pairs)

    def drop(self) -> None:
        """Forget what was added, and begin anew."""
        if self.rows:
            self.take()


def added(total: torch.Tensor | None, gradient: torch.Tensor | None, rows: int) -> torch.Tensor | None:
    """Return a sum with a gradient added, so many times."""
    if gradient is None:
        return total
    wide = gradient.to(torch.promote_types(gradient.dtype, torch.float32)) * rows
    return wide if total is None else total + wide
