"""Windows: the gradients of several steps, added up until an update takes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from runtime.backends.torch.library.kernels import TensorList, foreach_gather, foreach_share
from runtime.backends.torch.library.optimizers import require_gradients


class Window:
    """What several steps gave, in float32 at least, and for how many rows it stands."""

    def __init__(self, parameters: Iterable[torch.Tensor], is_mean: bool = True) -> None:
        self.parameters, self.is_mean = list(parameters), is_mean
        self.totals: TensorList = []
        self.rows: Any = 0

    @torch.no_grad()
    def add(self, gradients: Sequence[torch.Tensor], rows: int = 1) -> None:
        """Add gradients, each as often as it has rows."""
        require_gradients(gradients)
        wide = [g.to(torch.promote_types(g.dtype, torch.float32)) for g in gradients]
        self.totals = foreach_gather(self.totals, wide, rows)
        self.rows += rows

    @torch.no_grad()
    def take(self) -> tuple[torch.Tensor, ...]:
        """Return the mean over all rows, or the sum, and begin anew."""
        found = foreach_share(self.totals, self.rows) if self.is_mean else self.totals
        self.totals, self.rows = [], 0
        return tuple(total.to(p.dtype) for total, p in zip(found, self.parameters, strict=True))

    def drop(self) -> None:
        """Forget what was added, and begin anew."""
        self.totals, self.rows = [], 0


class GuardedWindow(Window):
    """A window that takes no gradients in without a verdict; ``is_whole``: one that is missing spoils all of it.

    How many rows it stands for only the device knows.
    """

    def __init__(self, parameters: Iterable[torch.Tensor], is_mean: bool = True, is_whole: bool = False) -> None:
        super().__init__(parameters, is_mean)
        self.is_whole = is_whole
        self.spoiled: Any = False

    @torch.no_grad()
    def add(self, gradients: Sequence[torch.Tensor], rows: int = 1, commits: torch.Tensor | None = None) -> None:
        """Add gradients where they are committed, each as often as it has rows."""
        if commits is None:
            commits = torch.ones((), dtype=torch.bool, device=gradients[0].device)
        counted = self.rows + torch.where(commits, rows, 0)
        super().add([torch.where(commits, gradient, 0) for gradient in gradients], rows)
        self.rows = counted
        self.spoiled = torch.logical_not(commits) | self.spoiled

    def is_filled(self) -> torch.Tensor:
        """Return whether there is something to take: the device's verdict."""
        return torch.logical_not(self.spoiled) if self.is_whole else self.rows > 0

    @torch.no_grad()
    def take(self) -> tuple[torch.Tensor, ...]:
        """Return the mean over the rows that were taken in, or the sum, and begin anew."""
        self.spoiled = False
        return super().take()

    def drop(self) -> None:
        """Forget what was added, and begin anew."""
        super().drop()
        self.spoiled = False
