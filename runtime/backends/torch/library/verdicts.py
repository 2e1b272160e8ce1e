"""Verdicts: whether the gradients of a step are finite, and what is held back where they are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from runtime.backends.torch.library.kernels import are_finite
from runtime.backends.torch.library.scaling import NotFinite


class Verdicts:
    """The verdicts of a step; the device decides, and the host asks it once."""

    def __init__(self, are_new: bool) -> None:
        self.are_new = are_new  # the gradients that it looks at: nobody else has them
        self.given: dict[str, bool] = {}  # of the last step, by update: its gradients were finite
        self.committed: dict[str, bool] = {}  # of the last step, by op: it took place
        self.judged: dict[str, tuple[Any, ...]] = {}  # gradients that are not finite, until the next step
        self.seen: dict[str, tuple[tuple[Any, ...], torch.Tensor]] = {}
        self.pending: list[Held] = []

    @torch.no_grad()
    def look(self, update: str, *sets: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """Return whether all gradients of an update are finite, without waiting for the device."""
        gradients = [gradient for each in sets for gradient in each]
        finite = are_finite([each for each in gradients if each is not None], self.are_new)
        self.seen[update] = tuple(gradients), finite
        return finite

    def held(self, op: str, commits: torch.Tensor, *changed: Any) -> Held:
        """Return a context whose writes stay only where the device commits them."""
        self.pending.append(Held(op, commits, changed))
        return self.pending[-1]

    def read(self, commits: Mapping[str, torch.Tensor]) -> dict[str, bool]:
        """Return which ops take place, by op: all that the step knows comes from the device at once."""
        finite = {update: verdict for update, (_, verdict) in self.seen.items()}
        answers = torch.stack([*commits.values(), *finite.values()]).tolist()
        self.committed = dict(zip(commits, answers, strict=False))
        self.given = dict(zip(finite, answers[len(commits) :], strict=True))
        self.judged = {update: self.seen[update][0] for update, is_finite in self.given.items() if not is_finite}
        for held in self.pending:
            held.settle(self.committed[held.op])
        self.seen, self.pending = {}, []
        return self.committed

    @property
    def finite(self) -> bool:
        """Return whether all gradients of the last step were finite."""
        return all(self.given.values())

    def begin(self) -> None:
        """Forget what a step that failed left behind."""
        self.seen, self.pending, self.judged = {}, [], {}
        self.given, self.committed = {}, {}

    def withheld(self) -> frozenset[str]:
        """Return the ops that did not take place in the last step."""
        return frozenset(op for op, took_place in self.committed.items() if not took_place)

    def require(self, update: str) -> None:
        """Raise NotFinite where the gradients of an update were not finite."""
        if not self.given.get(update, True):
            raise NotFinite("GS280", update, f"the gradients of '{update}' are not finite")


class Held:
    """Writes that stay only where the device commits them: what they change is put back where it does not.

    ``changed``: optimizers, and lists of tensors.
    """

    def __init__(self, op: str, commits: torch.Tensor, changed: Sequence[Any]) -> None:
        self.op, self.commits = op, commits
        self.optimizers = [each for each in changed if not isinstance(each, list)]
        self.lists = [each for each in changed if isinstance(each, list)]
        self.before: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.undoing: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        """Keep what may be changed."""
        tensors = [tensor for each in self.lists for tensor in each]
        tensors += [p for optimizer in self.optimizers for p in optimizer.parameters]
        tensors += [slot for optimizer in self.optimizers for slot in list_slots(optimizer)]
        self.before = [(tensor, tensor.detach().clone()) for tensor in tensors]
        self.undoing = [optimizer.keep(self.commits) for optimizer in self.optimizers]

    @torch.no_grad()
    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Put back what is on the device of the verdict; what is elsewhere waits until the host knows it."""
        for tensor, old in self.before:
            if tensor.device == self.commits.device:
                tensor.copy_(torch.where(self.commits, tensor, old))
        self.before = [pair for pair in self.before if pair[0].device != self.commits.device]
        for optimizer in self.optimizers:
            optimizer.guard = None

    @torch.no_grad()
    def settle(self, committed: bool) -> None:
        """Put back what the host counts, now that it knows."""
        for tensor, old in () if committed else self.before:
            tensor.copy_(old)
        for undo in () if committed else self.undoing:
            undo()
        self.before, self.undoing = [], []


def list_slots(optimizer: Any) -> Iterator[torch.Tensor]:
    """Yield the slots of an optimizer of the library that exist; a wrapped one puts back its own."""
    for values in () if hasattr(optimizer, "optimizer") else optimizer.slots.values():
        yield from (value for value in values if isinstance(value, torch.Tensor))
