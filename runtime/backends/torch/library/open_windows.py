"""Windows of gradients of which some may be absent in some steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from runtime.backends.torch.library.windows import GuardedWindow, Window, at_least_one


class OpenWindow(Window):
    """A window of gradients of which some may be absent in some steps.

    A gradient that is absent in a step adds nothing to the sum, while its rows count: what comes out is the gradient of
    the mean over all rows. What was absent in every step is absent. Where elements are counted, the mean over these
    stands for the rows of the steps that had some: ``rested`` are those of the others.
    """

    is_open = True

    def __init__(self, parameters: Iterable[torch.Tensor], is_mean: bool = True, is_counted: bool = False) -> None:
        super().__init__(parameters, is_mean, is_counted)
        self.rested: Any = 0

    def rest(self, rows: int = 1) -> None:
        """Count the rows of a step from which all gradients are absent."""
        self.add([None] * len(self.parameters), rows)
        self.rested = self.rested + rows

    def share(self) -> Any:
        """Return what a mean divides by."""
        if not self.is_counted:
            return self.rows
        return at_least_one(self.count) * self.rows / at_least_one(self.rows - self.rested)

    def gather(self, gradients: Sequence[Any], rows: int) -> None:
        """Add the gradients that are there to the totals, each so many times."""
        before = self.totals or [None] * len(self.parameters)
        self.totals = [added(total, each, rows) for total, each in zip(before, gradients, strict=True)]

    @torch.no_grad()
    def take(self, fresh: bool = True) -> tuple[torch.Tensor | None, ...]:
        """Return the mean over all rows, or the sum, and begin anew; not ``fresh``: this step added nothing."""
        totals, share = self.totals or [None] * len(self.parameters), self.share() if self.is_mean else 1
        self.drop()
        pairs = zip(totals, self.parameters, strict=True)
        return tuple(None if total is None else (total / share).to(p.dtype) for total, p in pairs)

    def drop(self) -> None:
        """Forget what was added, and begin anew."""
        super().drop()
        self.rested = 0


class GuardedOpenWindow(GuardedWindow, OpenWindow):
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
        super().__init__(parameters, is_mean, is_counted, is_whole)
        self.seen: list[Any] = [False] * len(self.parameters)  # whether a step that was taken in had a gradient
        self.missed = [False] * len(self.parameters)  # whether some step had none

    @torch.no_grad()
    def add(self, gradients: Sequence[Any], rows: int = 1, count: Any = 0, commits: torch.Tensor | None = None) -> None:
        """Add the gradients that are there where they are committed, each as often as its rows, and what they count."""
        if commits is None:
            commits = torch.ones((), dtype=torch.bool, device=self.parameters[0].device)
        super().add(gradients, rows, count, commits)
        pairs = list(zip(self.seen, gradients, strict=True))
        self.seen = [seen if each is None or seen is True else commits | seen for seen, each in pairs]
        self.missed = [was or each is None for was, each in zip(self.missed, gradients, strict=True)]

    @torch.no_grad()
    def rest(self, rows: int = 1, commits: torch.Tensor | None = None) -> None:
        """Count the rows of a step from which all gradients are absent, where it is committed."""
        before = self.rows
        self.add([None] * len(self.parameters), rows, 0, commits)
        self.rested = self.rested + self.rows - before

    @torch.no_grad()
    def take(self, fresh: bool = True) -> tuple[torch.Tensor | None, ...]:
        """Return the mean over the rows that were taken in, or the sum, and begin anew."""
        asked = [at for at, seen in enumerate(self.seen) if isinstance(seen, torch.Tensor) and self.missed[at]]
        asked = [] if self.is_whole else asked  # all of it was taken in, or nothing comes of it
        answers = torch.stack([self.seen[at] for at in asked]).tolist() if asked else []
        absent = {at for at, was_seen in zip(asked, answers, strict=True) if not was_seen}
        return tuple(None if at in absent else each for at, each in enumerate(super().take(fresh)))

    def drop(self) -> None:
        """Forget what was added, and begin anew."""
        super().drop()
        self.seen, self.missed = [False] * len(self.parameters), [False] * len(self.parameters)


def added(total: torch.Tensor | None, gradient: torch.Tensor | None, rows: int) -> torch.Tensor | None:
    """Return a sum with a gradient added, so many times."""
    if gradient is None:
        return total
    wide = gradient.to(torch.promote_types(gradient.dtype, torch.float32)) * rows
    return wide if total is None else total + wide
