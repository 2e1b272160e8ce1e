"""Windows: the gradients of several steps, added up until an update takes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from runtime.backends.torch.library.kernels import foreach_gather, foreach_scale_by, foreach_share
from runtime.backends.torch.library.optimizers import require_gradients


class Window:
    """What several steps gave, in float32 at least, and for how many rows it stands.

    ``is_counted``: they are gradients of sums over elements that are counted separately. ``keeps_before``: a step can
    be undone, if it was not committed.

    ``guard``: gradients that are not committed are left out ("drop"), or spoil all of it ("window"). The device masks
    them, and it alone knows for how many rows the window stands.

    ``may_miss``: some gradients may be absent in some steps. They add nothing to the sum, while their rows count: what
    comes out is the gradient of the mean over all rows. What was absent in every step that was taken in is absent:
    ``seen`` says. Where elements are counted, the mean over these counts for the rows of the steps that had some:
    ``absent_rows`` are those of the others.

    Steps whose number of rows is the same power of two are added up as they are: their sum is multiplied by that
    number, the ``unit``, once it is taken or another number comes. Such a product is exact, so no bit changes.
    """

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        *,
        is_mean: bool = True,
        is_counted: bool = False,
        may_miss: bool = False,
        guard: str = "none",
        keeps_before: bool = False,
    ) -> None:
        self.parameters, self.is_mean, self.is_counted = list(parameters), is_mean, is_counted
        self.may_miss, self.guard, self.keeps_before = may_miss, guard, keeps_before
        # Where no parameter is of a smaller type, no call converts its gradients: to ask each takes longer than a sum.
        self.is_narrow = any(torch.promote_types(p.dtype, torch.float32) != p.dtype for p in self.parameters)
        self.before: Mapping[str, Any] = {}
        self.had: Sequence[bool] = []  # which gradients the last step had
        self.commits: torch.Tensor | None = None  # whether it was taken in
        self.drop()

    def drop(self) -> None:
        """Forget what was added, and begin anew."""
        self.totals: Sequence[Any] = [None] * len(self.parameters) if self.may_miss else []
        self.seen = [False] * len(self.parameters)
        self.rows: Any = 0
        self.count: Any = 0
        self.absent_rows: Any = 0
        self.spoiled: Any = False
        self.unit = 1
        self.are_lent = False  # the totals are the gradients of one step, which others may hold

    def add(self, gradients: Sequence[Any], rows: int = 1, count: Any = 0, commits: torch.Tensor | None = None) -> None:
        """Add gradients, each as often as it has rows, or those of sums and what these count, where committed."""
        # Without their history: then nothing below records any, and needs no no_grad, which takes longer than the sum.
        gradients = [each.detach() if each is not None and each.requires_grad else each for each in gradients]
        self.before = {**vars(self), "before": {}} if self.keeps_before else {}
        times, taken = 1 if self.is_counted else rows, rows
        if commits is not None:
            gradients = [None if each is None else torch.where(commits, each, 0) for each in gradients]
            taken = torch.where(commits, rows, 0)
            count = torch.where(commits, count, 0) if self.is_counted else count
            self.spoiled = torch.logical_not(commits) | self.spoiled
        wide: list[Any] = [widen(each) for each in gradients] if self.is_narrow else gradients
        if self.may_miss:
            self.totals = [added(*pair, times) for pair in zip(self.totals, wide, strict=True)]
            self.had, self.commits = [each is not None for each in gradients], commits
            if commits is None or self.guard == "window":
                self.settle(True)
        else:
            self.gather(wide, times)
        self.rows = self.rows + taken
        self.count = self.count + count

    def gather(self, gradients: list[Any], times: int) -> None:
        """Add gradients to the totals, each so many times."""
        if not self.totals and is_power_of_two(times):
            require_gradients(gradients)
            self.totals, self.unit, self.are_lent = gradients, times, True
            return
        if times != self.unit:
            self.multiply()
        try:
            self.totals = foreach_gather(list(self.totals), gradients, times // self.unit, not self.are_lent)
        except (AttributeError, TypeError):
            require_gradients(gradients)
            raise
        self.are_lent = False

    def multiply(self) -> None:
        """Multiply the totals by their unit, which is 1 then."""
        if self.unit != 1:
            self.totals, self.unit, self.are_lent = foreach_scale_by(list(self.totals), self.unit), 1, False

    def add_absent(self, rows: int = 1, commits: torch.Tensor | None = None) -> None:
        """Count the rows of a step from which all gradients are absent."""
        before = self.rows
        self.add([None] * len(self.parameters), rows, 0, commits)
        self.absent_rows = self.absent_rows + self.rows - before

    def settle(self, was_taken: bool) -> None:
        """Note which gradients the last step had, if it was taken in: now the host knows."""
        self.seen = [one or (was_taken and other) for one, other in zip(self.seen, self.had, strict=True)]

    def is_filled(self) -> torch.Tensor:
        """Return whether there is something to take: the device's verdict."""
        device = self.parameters[0].device
        if self.guard == "window":
            return torch.logical_not(on_device(self.spoiled, device))
        return on_device(self.rows, device) > 0

    def take(self, fresh: bool = True) -> tuple[Any, ...]:
        """Return the mean over all rows, or all that is counted, or the sum, and begin anew.

        Not ``fresh``: this step added nothing.
        """
        if not self.is_mean:
            self.multiply()
        found = self.totals
        if self.may_miss:
            share = self.share() if self.is_mean else 1
            found = [total / share if seen else None for total, seen in zip(found, self.seen, strict=True)]
        elif self.is_mean:
            found = foreach_share(list(found), self.share(), in_place=not (self.are_lent or self.keeps_before))
        self.drop()
        if self.is_narrow:
            pairs = zip(found, self.parameters, strict=True)
            found = [None if each is None else each.to(p.dtype) for each, p in pairs]
        return tuple(found)

    def share(self) -> Any:
        """Return what a mean divides by."""
        if not self.is_counted:
            share = self.rows // self.unit
            return share if self.guard == "none" else at_least_one(share)
        share = at_least_one(self.count)
        return share * self.rows / at_least_one(self.rows - self.absent_rows) if self.may_miss else share

    def restore(self) -> None:
        """Be as before the last step, of which nothing but zeros was added: the update takes no part in it."""
        vars(self).update(self.before)


def is_power_of_two(count: Any) -> bool:
    """Return whether a count is a whole number that the host knows, and a power of two."""
    return isinstance(count, int) and count > 0 and count & (count - 1) == 0


def on_device(number: Any, device: torch.device) -> torch.Tensor:
    """Return a number or truth that may be a tensor already as one on a device, without a copy from the host."""
    return number if isinstance(number, torch.Tensor) else torch.full((), number, device=device)


def widen(gradient: torch.Tensor | None) -> torch.Tensor | None:
    """Return a gradient in float32 at least; it may be absent."""
    return None if gradient is None else gradient.to(wide_type(gradient.dtype))


def wide_type(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which gradients of a type are added up: float32 at least."""
    return torch.promote_types(dtype, torch.float32)


def added(total: torch.Tensor | None, gradient: torch.Tensor | None, times: int) -> torch.Tensor | None:
    """Return a sum with a gradient added, so many times; either may be absent."""
    if gradient is None:
        return total
    new = gradient * times
    return new if total is None else total + new


def at_least_one(count: Any) -> Any:
    """Return a count to divide by: of what keeps nothing the gradient is zero."""
    return torch.where(torch.as_tensor(count) == 0, 1, count)
