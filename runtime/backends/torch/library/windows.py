"""Windows: the gradients of several steps, added up until an update takes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from runtime.backends.torch.library.kernels import foreach_gather, foreach_share
from runtime.backends.torch.library.optimizers import require_gradients


class Window:
    """What several steps gave, in float32 at least, and for how many rows it stands.

    ``is_counted``: they are gradients of sums over elements that are counted beside them.
    """

    def __init__(self, parameters: Iterable[torch.Tensor], is_mean: bool = True, is_counted: bool = False) -> None:
        self.parameters, self.is_mean, self.is_counted = list(parameters), is_mean, is_counted
        self.totals: Sequence[Any] = []
        self.rows: Any = 0
        self.count: Any = 0

    @torch.no_grad()
    def add(self, gradients: Sequence[Any], rows: int = 1, count: Any = 0) -> None:
        """Add gradients, each as often as it has rows, or those of sums and what these count."""
        self.gather(gradients, 1 if self.is_counted else rows)
        self.rows = self.rows + rows
        self.count = self.count + count

    def gather(self, gradients: Sequence[Any], rows: int) -> None:
        """Add gradients to the totals, each so many times."""
        require_gradients(gradients)
        wide = [g.to(torch.promote_types(g.dtype, torch.float32)) for g in gradients]
        self.totals = foreach_gather(list(self.totals), wide, rows)

    @torch.no_grad()
    def take(self) -> tuple[Any, ...]:
        """Return the mean over all rows, or all that is counted, or the sum, and begin anew."""
        found = foreach_share(list(self.totals), self.share()) if self.is_mean else self.totals
        self.drop()
        return tuple(total.to(p.dtype) for total, p in zip(found, self.parameters, strict=True))

    def share(self) -> Any:
        """Return what a mean divides by."""
        return at_least_one(self.count) if self.is_counted else self.rows

    def drop(self) -> None:
        """Forget what was added, and begin anew."""
        self.totals, self.rows, self.count = [], 0, 0


class GuardedWindow(Window):
    """A window that takes no gradients in without a verdict; ``is_whole``: one that is missing spoils all of it.

    How many rows it stands for only the device knows. ``keeps_before``: a step can be undone, if it was not committed.
    """

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        is_mean: bool = True,
        is_counted: bool = False,
        is_whole: bool = False,
        keeps_before: bool = False,
    ) -> None:
        super().__init__(parameters, is_mean, is_counted)
        self.is_whole, self.keeps_before = is_whole, keeps_before
        self.spoiled: Any = False
        self.before: Mapping[str, Any] = {}

    @torch.no_grad()
    def add(self, gradients: Sequence[Any], rows: int = 1, count: Any = 0, commits: torch.Tensor | None = None) -> None:
        """Add gradients where they are committed, each as often as it has rows, or those of sums and their count."""
        self.before = {**vars(self), "before": {}} if self.keeps_before else {}
        if commits is None:
            commits = torch.ones((), dtype=torch.bool, device=self.parameters[0].device)
        kept = [None if each is None else torch.where(commits, each, 0) for each in gradients]
        self.gather(kept, 1 if self.is_counted else rows)
        self.rows = self.rows + torch.where(commits, rows, 0)
        self.count = self.count + torch.where(commits, count, 0)
        self.spoiled = torch.logical_not(commits) | self.spoiled

    def restore(self) -> None:
        """Be as before the last step, of which nothing but zeros was added: the update takes no part in it."""
        vars(self).update(self.before)

    def is_filled(self) -> torch.Tensor:
        """Return whether there is something to take: the device's verdict."""
        device = self.parameters[0].device
        if self.is_whole:
            return torch.logical_not(torch.as_tensor(self.spoiled, device=device))
        return torch.as_tensor(self.rows, device=device) > 0

    def drop(self) -> None:
        """Forget what was added, and begin anew."""
        super().drop()
        self.spoiled = False


def at_least_one(count: Any) -> Any:
    """Return a count to divide by: of what keeps nothing the gradient is zero."""
    return torch.where(torch.as_tensor(count) == 0, 1, count)
