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

    ``is_whole``: a step that is missing spoils all of it. Whether a step was taken in only the device knows, until the
    host reads the verdicts at its end and tells: so only of the last step it may be ``undecided``.
    """

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        is_mean: bool = True,
        is_counted: bool = False,
        is_whole: bool = False,
        keeps_before: bool = False,
    ) -> None:
        super().__init__(parameters, is_mean, is_counted, is_whole, keeps_before)
        self.seen = [False] * len(self.parameters)  # whether a step that was taken in had a gradient
        self.is_begun = False  # whether a step was taken in
        self.undecided: torch.Tensor | None = None  # whether the last step was taken in
        self.had = [False] * len(self.parameters)  # whether the last step had a gradient

    @torch.no_grad()
    def add(self, gradients: Sequence[Any], rows: int = 1, count: Any = 0, commits: torch.Tensor | None = None) -> None:
        """Add the gradients that are there where they are committed, each as often as its rows, and what they count."""
        self.decide()  # where a step asks for its verdicts ahead of its gather, nobody told of that step
        super().add(gradients, rows, count, commits)
        self.had, self.undecided = [each is not None for each in gradients], commits
        if commits is None:
            self.settle(True)

    def settle(self, was_taken: bool) -> None:
        """Note whether the last step was taken in, now that the host knows."""
        if was_taken:
            self.seen, self.is_begun = [one or other for one, other in zip(self.seen, self.had, strict=True)], True
        self.undecided = None

    def decide(self) -> None:
        """Find out whether the last step was taken in by asking the device."""
        if self.undecided is not None:
            self.settle(bool(self.undecided))

    @property
    def question(self) -> torch.Tensor | None:
        """Return whether the last step was taken in, where the host must know it to tell which gradients there are.

        There is none where nothing comes of the window without that step, and where the step had nothing new.
        """
        is_needed = self.is_whole or not self.is_begun
        is_new = any(had and not seen for had, seen in zip(self.had, self.seen, strict=True))
        return self.undecided if is_new and not is_needed else None

    @torch.no_grad()
    def rest(self, rows: int = 1, commits: torch.Tensor | None = None) -> None:
        """Count the rows of a step from which all gradients are absent, where it is committed."""
        before = self.rows
        self.add([None] * len(self.parameters), rows, 0, commits)
        self.rested = self.rested + self.rows - before

    @torch.no_grad()
    def take(self, fresh: bool = True) -> tuple[torch.Tensor | None, ...]:
        """Return the mean over the rows that were taken in, or the sum, and begin anew."""
        if self.question is not None:
            self.decide()
        return self.take_both()[0]

    @torch.no_grad()
    def take_both(self) -> tuple[tuple[torch.Tensor | None, ...], ...]:
        """Return what comes of a window in which the last step was taken in, and of one without it, and begin anew."""
        without, had = self.seen, self.had if self.undecided is not None else self.seen
        taken, both = super().take(), [one or other for one, other in zip(without, had, strict=True)]
        ways = (zip(taken, flags, strict=True) for flags in (both, without))
        return tuple(tuple(each if is_there else None for each, is_there in pairs) for pairs in ways)

    def drop(self) -> None:
        """Forget what was added, and begin anew."""
        super().drop()
        self.seen, self.is_begun, self.undecided = [False] * len(self.parameters), False, None


def added(total: torch.Tensor | None, gradient: torch.Tensor | None, rows: int) -> torch.Tensor | None:
    """Return a sum with a gradient added, so many times."""
    if gradient is None:
        return total
    wide = gradient.to(torch.promote_types(gradient.dtype, torch.float32)) * rows
    return wide if total is None else total + wide
