"""Verdicts: whether the gradients of a step are finite, and what is put back where they are not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from runtime.backends.torch.library.kernels import are_finite
from runtime.backends.torch.library.scaling import NotFinite


class Verdicts:
    """The verdicts of a step: the device decides, and the host asks it where it needs to know."""

    def __init__(self, are_new: bool) -> None:
        self.are_new = are_new  # the gradients that it checks are used nowhere else
        self.begin()

    def begin(self) -> None:
        """Forget the step before."""
        self.seen: dict[str, tuple[tuple[Any, ...], torch.Tensor]] = {}  # gradients of which the host knows nothing yet
        self.own: dict[str, tuple[Any, ...]] = {}  # gradients that only this replica has checked
        self.given: dict[str, bool] = {}  # by update, or its window, whether gradients were finite
        self.nonfinite: dict[str, tuple[Any, ...]] = {}  # gradients that are not finite, until the next step
        self.committed: dict[str, bool] = {}  # by op: it took place
        self.kept: dict[str, list[tuple[Any, Any]]] = {}  # by op: optimizers that it applied early, as they were before

    @torch.no_grad()
    def check_finite(
        self,
        update: str,
        *sets: Sequence[torch.Tensor | None],
        filled: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return whether all gradients of an update are finite, without waiting for the device.

        ``filled``: whether the window from which they come holds something; if not, they are no overflow.
        """
        gradients = [gradient for each in sets for gradient in each]
        finite = are_finite([each for each in gradients if each is not None], self.are_new)
        finite = finite if filled is None else finite | torch.logical_not(filled)
        self.seen[update] = tuple(gradients), finite
        return finite

    def check_own(
        self, update: str, *sets: Sequence[torch.Tensor | None], filled: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return whether the gradients are finite that this replica has; the verdict is that of all."""
        finite = self.check_finite(update, *sets, filled=filled)
        self.own[update], _ = self.seen.pop(update)
        return finite

    def agree(self, update: str, finite: torch.Tensor) -> torch.Tensor:
        """Take the verdict of all replicas over gradients that each has checked, and return it."""
        self.seen[update] = self.own.pop(update), finite
        return finite

    @contextmanager
    def held(self, op: str, commits: torch.Tensor, *changed: Any) -> Iterator[None]:
        """Let writes stay only where the device commits them, which the host does not know yet.

        ``changed``: optimizers, and lists of tensors. The device puts parameters and tensors back at once; what
        optimizers keep is put back when the host knows. Meanwhile these meet zeros for what is not committed.
        """
        optimizers = [each for each in changed if not isinstance(each, list)]
        lists = [each if isinstance(each, list) else each.parameters for each in changed]
        before = [(tensor, tensor.detach().clone()) for each in lists for tensor in each]
        self.kept[op] = [(optimizer, optimizer.keep()) for optimizer in optimizers]
        try:
            for optimizer in optimizers:
                optimizer.guard = commits
            yield
        finally:
            for optimizer in optimizers:
                optimizer.guard = None
        with torch.no_grad():
            for tensor, old in before:
                tensor.copy_(torch.where(commits.to(tensor.device), tensor, old))

    def read(self, commits: Mapping[str, torch.Tensor], *windows: Any) -> dict[str, bool]:
        """Return which ops take place, by op, with those of which the host knew; all that is new comes at once.

        Windows learn whether they took in the step's gradients.
        """
        found = {update: finite for update, (_, finite) in self.seen.items()}
        taken = [window.commits for window in windows]
        flags = [*commits.values(), *found.values(), *taken]
        device = next((each.device for each in flags if each.device.type != "cpu"), flags[0].device)
        answers = iter(self.ask(torch.stack([each.to(device) for each in flags])))  # of no gradients it is the host's
        self.committed.update(zip(commits, answers, strict=False))
        self.given.update(zip(found, answers, strict=False))
        for window, was_taken in zip(windows, answers, strict=True):
            window.settle(was_taken)
        self.nonfinite.update({update: self.seen[update][0] for update in found if not self.given[update]})
        for op in [each for each in self.kept if each in commits]:
            for optimizer, before in self.kept.pop(op):
                if not self.committed[op]:
                    optimizer.put(before)
        self.seen = {}
        return self.committed

    def ask(self, flags: torch.Tensor) -> list[bool]:
        """Return what the device found; the host waits for it."""
        return flags.tolist()

    def gave(self, *updates: str) -> bool:
        """Return whether the gradients of updates were finite, as far as the host asked for their verdicts."""
        return all(self.given.get(each, True) for each in updates)

    @property
    def finite(self) -> bool:
        """Return whether all gradients of the last step were finite."""
        return self.gave(*self.given)

    def withheld(self) -> frozenset[str]:
        """Return the ops that did not take place in the last step."""
        return frozenset(op for op, took_place in self.committed.items() if not took_place)

    def require(self, update: str, *others: str) -> None:
        """Raise NotFinite where some verdict over the gradients of an update was not given."""
        if not self.gave(update, *others):
            raise NotFinite("GS280", update, f"the gradients of '{update}' are not finite")
