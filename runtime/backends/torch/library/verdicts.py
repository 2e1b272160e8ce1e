"""Verdicts: whether the gradients of a step are finite, and what is held back where they are not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

from runtime.backends.torch.library.kernels import are_finite
from runtime.backends.torch.library.optimizers import copied
from runtime.backends.torch.library.scaling import NotFinite


class Verdicts:
    """The verdicts of a step; the device decides, and the host asks it once."""

    def __init__(self, are_new: bool) -> None:
        self.are_new = are_new  # the gradients that it looks at: nobody else has them
        self.given: dict[str, bool] = {}  # of the last step: by update, or its window, whether gradients were finite
        self.committed: dict[str, bool] = {}  # of the last step, by op: it took place
        self.judged: dict[str, tuple[Any, ...]] = {}  # gradients that are not finite, until the next step
        self.seen: dict[str, tuple[tuple[Any, ...], torch.Tensor]] = {}
        self.pending: list[Held] = []
        self.commits: dict[str, torch.Tensor] = {}  # by op: what it did early stays; by window: it took a step in
        self.worlds: dict[Any, list[World]] = {}  # by optimizer, what it may keep now
        self.sets: list[Any] = []  # gradient sets of which the device alone knows what is there

    @torch.no_grad()
    def look(
        self, update: str, *sets: Sequence[torch.Tensor | None], filled: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return whether all gradients of an update are finite, without waiting for the device.

        ``filled``: whether the window from which they come holds something; if not, they are no overflow.
        """
        gradients = [gradient for each in sets for gradient in each]
        finite = are_finite([each for each in gradients if each is not None], self.are_new)
        finite = finite if filled is None else finite | torch.logical_not(filled)
        self.seen[update] = tuple(gradients), finite
        return finite

    def held(self, op: str, commits: torch.Tensor, *changed: Any) -> Held:
        """Return a context whose writes stay only where the device commits them."""
        return Held(self, op, commits, changed)

    def ways(self, op: str, commits: torch.Tensor | None, *optimizers: Any, sets: Sequence[Any] = ()) -> Iterator[None]:
        """Yield once for every way in which earlier updates of optimizers may have ended, to make another in each.

        ``sets``: gradients that it is made of, of which the device alone knows which are there; so do these. What is
        right stays of the parameters, where the device commits it; ``commits``: None where nothing stops it. The host
        finds out later which way it was.
        """
        self.commits.update({} if commits is None else {op: commits})
        parameters = [p for optimizer in optimizers for p in optimizer.parameters]
        before = [p.detach().clone() for p in parameters]
        after, found = tuple(before), {optimizer: list[World]() for optimizer in optimizers}
        try:
            for answers, ended in combine_worlds([*map(self.live, optimizers), *(each.worlds for each in sets)]):
                worlds = ended[: len(optimizers)]
                for optimizer, world in zip(optimizers, worlds, strict=True):
                    optimizer.put(copied(world.state))
                for each, world in zip(sets, ended[len(optimizers) :], strict=True):
                    each.now = world.state
                self.guard(commits, optimizers)
                put_values(parameters, before)
                yield
                made = answers if commits is None else {**answers, op: True}
                after = select_where(self.holds(made), [p.detach() for p in parameters], after)
                for optimizer, world in zip(optimizers, worlds, strict=True):
                    found[optimizer].append(World(made, optimizer.keep()))
                    if commits is not None:
                        found[optimizer].append(World({**answers, op: False}, world.state))
            self.worlds.update(found)
            before = after
        finally:
            put_values(parameters, before)
            self.guard(None, optimizers)

    def counted(self, make: Callable[[], Sequence[torch.Tensor | None]], *optimizers: Any) -> tuple[Any, ...]:
        """Return gradients that hang on how often optimizers were applied, which the host does not know yet.

        They are made for every count that there may be; the device takes those of the way in which updates ended.
        """
        ends: dict[tuple[int, ...], list[Mapping[str, bool]]] = {}
        for answers, worlds in combine_worlds([self.worlds.get(each, UNDECIDED) for each in optimizers]):
            pairs = zip(worlds, optimizers, strict=True)
            ends.setdefault(tuple(world.count(optimizer) for world, optimizer in pairs), []).append(answers)
        now, found = [each.applied for each in optimizers], tuple[Any, ...]()
        try:
            for counts, ways in ends.items():
                put_counts(optimizers, counts)
                made = tuple(make())
                found = select_where(self.holds(*ways), made, found) if found else made
        finally:
            put_counts(optimizers, now)
        return found

    def live(self, optimizer: Any) -> list[World]:
        """Return the ways in which earlier updates of an optimizer may have ended, with what it keeps in each."""
        state = optimizer.keep()
        worlds = self.worlds.get(optimizer, UNDECIDED)
        self.worlds[optimizer] = [World(each.answers, state if each.state is None else each.state) for each in worlds]
        return self.worlds[optimizer]

    def holds(self, *ways: Mapping[str, bool]) -> torch.Tensor:
        """Return whether updates ended in one of some ways: the device's answer; what nothing hangs on holds."""
        sure = torch.ones((), dtype=torch.bool, device=next(iter(self.commits.values()), torch.empty(())).device)
        told = [[self.commits[op].to(sure.device) == stays for op, stays in answers.items()] for answers in ways]
        return torch.stack([torch.stack([sure, *each]).all() for each in told]).any()

    def guard(self, commits: torch.Tensor | None, optimizers: Iterable[Any]) -> None:
        """Let optimizers meet zeros for gradients that the device does not commit, or no more."""
        for optimizer in optimizers:
            optimizer.guard = commits

    def read(self, commits: Mapping[str, torch.Tensor], *windows: Any) -> dict[str, bool]:
        """Return which ops take place, by op: all that the step knows comes from the device at once.

        Windows are told whether they took in what the step gave.
        """
        finite = {update: verdict for update, (_, verdict) in self.seen.items()}
        undecided = [window for window in windows if window.undecided is not None]
        others = {name: each for name, each in self.commits.items() if name not in commits}
        told = [window.undecided for window in undecided]
        answers = iter(self.ask(torch.stack([*commits.values(), *finite.values(), *others.values(), *told])))
        self.committed = dict(zip(commits, answers, strict=False))
        self.given = dict(zip(finite, answers, strict=False))
        known = {**self.committed, **dict(zip(others, answers, strict=False))}
        for window, was_taken in zip(undecided, answers, strict=True):
            window.settle(was_taken)
        self.judged = {update: self.seen[update][0] for update, is_finite in self.given.items() if not is_finite}
        self.settle(known)
        self.seen = {}
        return self.committed

    def ask(self, flags: torch.Tensor) -> list[bool]:
        """Return what the device found; the host waits for it."""
        return flags.tolist()

    def settle(self, committed: Mapping[str, bool]) -> None:
        """Put back what the device did not, and what optimizers keep, where an early update does not stay."""
        for held in self.pending:
            held.settle(committed[held.op])
        for optimizer, worlds in self.worlds.items():
            found = next(each for each in worlds if each.answers.items() <= committed.items())
            if found.state is not None:
                optimizer.put(found.state)
        for each in self.sets:
            each.settle(committed)
        self.pending, self.commits, self.worlds, self.sets = [], {}, {}, []

    def decide(self) -> None:
        """Settle early updates by asking the device about each."""
        self.settle({op: bool(commits) for op, commits in self.commits.items()})

    @property
    def finite(self) -> bool:
        """Return whether all gradients of the last step were finite."""
        return all(self.given.values())

    def begin(self) -> None:
        """Forget the step before."""
        self.guard(None, self.worlds)
        self.pending, self.commits, self.worlds, self.sets = [], {}, {}, []
        self.seen, self.judged, self.given, self.committed = {}, {}, {}, {}

    def withheld(self) -> frozenset[str]:
        """Return the ops that did not take place in the last step."""
        return frozenset(op for op, took_place in self.committed.items() if not took_place)

    def require(self, update: str, *others: str) -> None:
        """Raise NotFinite where some verdict over the gradients of an update was not given."""
        if not all(self.given.get(each, True) for each in (update, *others)):
            raise NotFinite("GS280", update, f"the gradients of '{update}' are not finite")


@dataclass(frozen=True)
class World:
    """What there is if some updates stayed and others did not; None for what an optimizer keeps as it is."""

    answers: Mapping[str, bool]
    state: Any

    def count(self, optimizer: Any) -> int:
        """Return how often the optimizer was applied then."""
        return optimizer.applied if self.state is None else self.state[0]


UNDECIDED = (World({}, None),)
"""What an optimizer may keep of which no update waits for a verdict."""


def combine_worlds(worlds: Sequence[Sequence[World]]) -> Iterator[tuple[Mapping[str, bool], tuple[World, ...]]]:
    """Yield every way in which updates may have ended, with what each of several optimizers keeps then."""
    for found in product(*worlds):
        answers = {op: stays for each in found for op, stays in each.answers.items()}
        if all(each.answers.items() <= answers.items() for each in found):
            yield answers, found


def select_where(holds: torch.Tensor, made: Sequence[Any], others: Sequence[Any]) -> tuple[Any, ...]:
    """Return tensors where something holds, and others where not; where there is none in both, none."""
    pairs = zip(made, others, strict=True)
    return tuple(None if new is None else torch.where(holds.to(new.device), new, old) for new, old in pairs)


def put_counts(optimizers: Sequence[Any], counts: Sequence[int]) -> None:
    """Let optimizers have been applied so often."""
    for optimizer, count in zip(optimizers, counts, strict=True):
        optimizer.applied = count


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
