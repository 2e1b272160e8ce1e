"""Verdicts: whether the gradients of a step are finite, and what is held back where they are not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from runtime.backends.torch.library.kernels import are_finite
from runtime.backends.torch.library.optimizers import copied
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
        self.commits: dict[str, torch.Tensor] = {}  # by op: whether what it did early stays
        self.worlds: dict[Any, list[World]] = {}  # by optimizer, what it may keep now

    @torch.no_grad()
    def look(self, update: str, *sets: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """Return whether all gradients of an update are finite, without waiting for the device."""
        gradients = [gradient for each in sets for gradient in each]
        finite = are_finite([each for each in gradients if each is not None], self.are_new)
        self.seen[update] = tuple(gradients), finite
        return finite

    def held(self, op: str, commits: torch.Tensor, *changed: Any) -> Held:
        """Return a context whose writes stay only where the device commits them."""
        return Held(self, op, commits, changed)

    def ways(self, op: str, commits: torch.Tensor, *optimizers: Any) -> Iterator[None]:
        """Yield once for every way in which earlier updates of optimizers may have ended, to make another in each.

        What is right stays of the parameters, where the device commits it; the host finds out later which way it was.
        """
        self.commits[op] = commits
        parameters = [p for optimizer in optimizers for p in optimizer.parameters]
        before = [p.detach().clone() for p in parameters]
        after, worlds = list(before), [(each, []) for each in optimizers]
        try:
            for answers, states in self.combine(optimizers):
                for optimizer, state in zip(optimizers, states, strict=True):
                    optimizer.put(copied(state))
                self.guard(commits, optimizers)
                put_values(parameters, before)
                yield
                wanted = [self.commits[each].to(commits.device) == is_so for each, is_so in answers.items()]
                holds = torch.stack([commits, *wanted]).all()
                pairs = zip(parameters, after, strict=True)
                after = [torch.where(holds.to(p.device), p.detach(), old) for p, old in pairs]
                for (optimizer, found), state in zip(worlds, states, strict=True):
                    found += [World({**answers, op: True}, optimizer.keep()), World({**answers, op: False}, state)]
            self.worlds.update(worlds)
            before = after
        finally:
            put_values(parameters, before)
            self.guard(None, optimizers)

    def combine(self, optimizers: Sequence[Any]) -> list[tuple[dict[str, bool], list[Any]]]:
        """Return every way in which earlier updates of optimizers may have ended, with what each keeps then."""
        ways: list[tuple[dict[str, bool], list[Any]]] = [({}, [])]
        for optimizer in optimizers:
            live = optimizer.keep()
            worlds = self.worlds.get(optimizer, [World({}, None)])
            known = [World(each.answers, live if each.state is None else each.state) for each in worlds]
            self.worlds[optimizer] = known
            ways = [
                ({**answers, **world.answers}, [*states, world.state])
                for answers, states in ways
                for world in known
                if all(answers.get(op, is_so) == is_so for op, is_so in world.answers.items())
            ]
        return ways

    def guard(self, commits: torch.Tensor | None, optimizers: Iterable[Any]) -> None:
        """Let optimizers meet zeros for gradients that the device does not commit, or no more."""
        for optimizer in optimizers:
            optimizer.guard = commits

    def read(self, commits: Mapping[str, torch.Tensor]) -> dict[str, bool]:
        """Return which ops take place, by op: all that the step knows comes from the device at once."""
        finite = {update: verdict for update, (_, verdict) in self.seen.items()}
        answers = torch.stack([*commits.values(), *finite.values()]).tolist()
        self.committed = dict(zip(commits, answers, strict=False))
        self.given = dict(zip(finite, answers[len(commits) :], strict=True))
        self.judged = {update: self.seen[update][0] for update, is_finite in self.given.items() if not is_finite}
        self.settle(self.committed)
        return self.committed

    def settle(self, committed: Mapping[str, bool]) -> None:
        """Put back what the device did not, and what optimizers keep, where an early update does not stay."""
        for held in self.pending:
            held.settle(committed[held.op])
        for optimizer, worlds in self.worlds.items():
            found = next(each for each in worlds if each.answers.items() <= committed.items())
            if found.state is not None:
                optimizer.put(found.state)
        self.seen, self.pending, self.commits, self.worlds = {}, [], {}, {}

    @property
    def finite(self) -> bool:
        """Return whether all gradients of the last step were finite."""
        return all(self.given.values())

    def begin(self) -> None:
        """Settle what a step that failed left behind."""
        self.settle({op: bool(commits) for op, commits in self.commits.items()})
        self.judged, self.given, self.committed = {}, {}, {}

    def withheld(self) -> frozenset[str]:
        """Return the ops that did not take place in the last step."""
        return frozenset(op for op, took_place in self.committed.items() if not took_place)

    def require(self, update: str) -> None:
        """Raise NotFinite where the gradients of an update were not finite."""
        if not self.given.get(update, True):
            raise NotFinite("GS280", update, f"the gradients of '{update}' are not finite")


@dataclass(frozen=True)
class World:
    """What an optimizer keeps if some updates stayed and others did not; None for what it keeps as it is."""

    answers: Mapping[str, bool]
    state: Any


class Held:
    """Writes that stay only where the device commits them: what they change is put back where it does not.

    ``changed``: optimizers, and lists of tensors. What optimizers keep is put back when the host knows.
    """

    def __init__(self, verdicts: Verdicts, op: str, commits: torch.Tensor, changed: Sequence[Any]) -> None:
        self.verdicts, self.op, self.commits = verdicts, op, commits
        self.optimizers = [each for each in changed if not isinstance(each, list)]
        self.lists = [each for each in changed if isinstance(each, list)]
        self.before: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __enter__(self) -> None:
        """Keep what may be changed."""
        tensors = [tensor for each in self.lists for tensor in each]
        tensors += [p for optimizer in self.optimizers for p in optimizer.parameters]
        self.before = [(tensor, tensor.detach().clone()) for tensor in tensors]
        self.verdicts.commits[self.op] = self.commits
        self.verdicts.pending.append(self)
        self.verdicts.guard(self.commits, self.optimizers)
        for optimizer in self.optimizers:
            worlds = [World({self.op: True}, None), World({self.op: False}, optimizer.keep())]
            self.verdicts.worlds[optimizer] = worlds

    @torch.no_grad()
    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Put back what is on the device of the verdict; what is elsewhere waits until the host knows it."""
        for tensor, old in self.before:
            if tensor.device == self.commits.device:
                tensor.copy_(torch.where(self.commits, tensor, old))
        self.before = [pair for pair in self.before if pair[0].device != self.commits.device]
        self.verdicts.guard(None, self.optimizers)

    @torch.no_grad()
    def settle(self, committed: bool) -> None:
        """Put back what the device did not, now that the host knows."""
        for tensor, old in () if committed else self.before:
            tensor.copy_(old)
        self.before = []


@torch.no_grad()
def put_values(tensors: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    """Give tensors values, in place."""
    for tensor, value in zip(tensors, values, strict=True):
        tensor.copy_(value)
