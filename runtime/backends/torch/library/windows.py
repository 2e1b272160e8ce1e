"""Windows: the gradients of several steps, added up until an update takes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from runtime.backends.torch.library.kernels import TensorList, foreach_gather, foreach_share
from runtime.backends.torch.library.optimizers import require_gradients


class Window:
    """What several steps gave, in float32 at least, and for how many rows it stands.

    ``is_counted``: they are gradients of sums over elements that are counted beside them; its rows are steps.
    """

    def __init__(self, parameters: Iterable[torch.Tensor], is_mean: bool = True, is_counted: bool = False) -> None:
        self.parameters, self.is_mean, self.is_counted = list(parameters), is_mean, is_counted
        self.totals: TensorList = []
        self.rows: Any = 0
        self.count: Any = 0

    @torch.no_grad()
    def add(self, gradients: Sequence[torch.Tensor], rows: int = 1, count: Any = 0) -> None:
        """Add gradients, each as often as it has rows, and what they count."""
        require_gradients(gradients)
        wide = [g.to(torch.promote_types(g.dtype, torch.float32)) for g in gradients]
        self.totals = foreach_gather(self.totals, wide, rows)
        self.rows += rows
        self.count = self.count + count

    @torch.no_grad()
    def take(self) -> tuple[torch.Tensor, ...]:
        """Return the mean over all rows, or all that is counted, or the sum, and begin anew."""
        share = at_least_one(self.count) if self.is_counted else self.rows
        found = foreach_share(self.totals, share) if self.is_mean else self.totals
        self.totals, self.rows, self.count = [], 0, 0
        return tuple(total.to(p.dtype) for total, p in zip(found, self.parameters, strict=True))

    def drop(self) -> None:
        """Forget what was added, and begin anew."""
        self.totals, self.rows, self.count = [], 0, 0


class GuardedWindow(Window):
    """A window that takes no gradients in without a verdict; ``is_whole``: one that is missing spoils all of it.

    How many rows it stands for only the device knows.
    """

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        is_mean: bool = True,
        is_counted: bool = False,
        is_whole: bool = False,
    ) -> None:
        super().__init__(parameters, is_mean, is_counted)
        self.is_whole = is_whole
        self.spoiled: Any = False

    @torch.no_grad()
    def add(
        self, gradients: Sequence[torch.Tensor], rows: int = 1, count: Any = 0, commits: torch.Tensor | None = None
    ) -> None:
        """Add gradients where they are committed, each as often as it has rows, and what they count."""
        if commits is None:
            commits = torch.ones((), dtype=torch.bool, device=gradients[0].device)
        counted = self.rows + torch.where(commits, rows, 0)
        super().add([torch.where(commits, gradient, 0) for gradient in gradients], rows, torch.where(commits, count, 0))
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


def at_least_one(count: Any) -> Any:
    """Return a count to divide by: of what keeps nothing the gradient is zero."""
    return torch.where(torch.as_tensor(count) == 0, 1, count)
