"""Windows of gradients of which some may be absent in some steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from runtime.backends.torch.library.windows import at_least_one


class OpenWindow:
    """What several steps gave, in float32 at least, and for how many rows it stands.

    A gradient that is absent in a step adds nothing to the sum, while its rows count: what comes out is the gradient of
    the mean over all rows. What was absent in every step is absent. ``is_counted``: they are gradients of sums over
    elements that are counted beside them; its rows are steps.
    """

    def __init__(self, parameters: Iterable[torch.Tensor], is_mean: bool = True, is_counted: bool = False) -> None:
        self.parameters, self.is_mean, self.is_open, self.is_counted = list(parameters), is_mean, True, is_counted
        self.totals: list[torch.Tensor | None] = []
        self.rows: Any = 0
        self.count: Any = 0

    @torch.no_grad()
    def add(self, gradients: Sequence[torch.Tensor | None], rows: int = 1, count: Any = 0) -> None:
        """Add the gradients that are there, each as often as it has rows, and what they count."""
        before = self.totals or [None] * len(self.parameters)
        self.totals = [added(total, each, rows) for total, each in zip(before, gradients, strict=True)]
        self.rows += rows
        self.count = self.count + count

    @torch.no_grad()
    def take(self, fresh: bool = True) -> tuple[torch.Tensor | None, ...]:
        """Return the mean over all rows, or the sum, and begin anew; not ``fresh``: this step added nothing."""
        totals, rows = self.totals or [None] * len(self.parameters), self.rows if self.is_mean else 1
        share = at_least_one(self.count) if self.is_counted else rows
        self.totals, self.rows, self.count = [], 0, 0
        pairs = zip(totals, self.parameters, strict=True)
        return tuple(None if total is None else (total / share).to(p.dtype) for total, p in pairs)

    def drop(self) -> None:
        """Forget what was added, and begin anew."""
        if self.rows:
            self.take()


class GuardedOpenWindow(OpenWindow):
    """A window of gradients that may be absent, which takes none in without a verdict.

    ``is_whole``: a step that is missing spoils all of it. Whether a gradient is there that only some steps had is what
    the device knows: it is asked for where the window is taken, and for no other.
    """

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        is_mean: bool = True,
        is_counted: bool = False,
        is_whole: bool = False,
    ) -> None:
        super().__init__(parameters, is_mean, is_counted)
        self.is_whole, self.rows = is_whole, 0
        self.spoiled: Any = False
        self.seen: list[Any] = [False] * len(self.parameters)  # whether a step that was taken in had a gradient
        self.missed = [False] * len(self.parameters)  # whether some step had none

    @torch.no_grad()
    def add(
        self,
        gradients: Sequence[torch.Tensor | None],
        rows: int = 1,
        count: Any = 0,
        commits: torch.Tensor | None = None,
    ) -> None:
        """Add the gradients that are there where they are committed, each as often as its rows, and what they count."""
        if commits is None:
            commits = torch.ones((), dtype=torch.bool, device=self.parameters[0].device)
        counted = self.rows + torch.where(commits, rows, 0)
        kept = [None if each is None else torch.where(commits, each, 0) for each in gradients]
        super().add(kept, rows, torch.where(commits, count, 0))
        self.rows, self.spoiled = counted, torch.logical_not(commits) | self.spoiled
        pairs = list(zip(self.seen, gradients, strict=True))
        self.seen = [seen if each is None or seen is True else commits | seen for seen, each in pairs]
        self.missed = [was or each is None for was, each in zip(self.missed, gradients, strict=True)]

    def is_filled(self) -> torch.Tensor:
        """Return whether there is something to take: the device's verdict."""
        return torch.logical_not(torch.as_tensor(self.spoiled)) if self.is_whole else self.rows > 0

    @torch.no_grad()
    def take(self, fresh: bool = True) -> tuple[torch.Tensor | None, ...]:
        """Return the mean over the rows that were taken in, or the sum, and begin anew."""
        asked = [at for at, seen in enumerate(self.seen) if isinstance(seen, torch.Tensor) and self.missed[at]]
        asked = [] if self.is_whole else asked  # all of it was taken in, or nothing comes of it
        answers = torch.stack([self.seen[at] for at in asked]).tolist() if asked else []
        absent = {at for at, was_seen in zip(asked, answers, strict=True) if not was_seen}
        taken = super().take(fresh)
        self.drop()
        return tuple(None if at in absent else each for at, each in enumerate(taken))

    def drop(self) -> None:
        """Forget what was added, and begin anew."""
        self.totals, self.rows, self.count, self.spoiled = [], 0, 0, False
        self.seen, self.missed = [False] * len(self.parameters), [False] * len(self.parameters)


def added(total: torch.Tensor | None, gradient: torch.Tensor | None, rows: int) -> torch.Tensor | None:
    """Return a sum with a gradient added, so many times."""
    if gradient is None:
        return total
    wide = gradient.to(torch.promote_types(gradient.dtype, torch.float32)) * rows
    return wide if total is None else total + wide
