"""Gradient sets of which the device alone knows which gradients are there: one for every way in which it may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from runtime.backends.torch.library.verdicts import Verdicts, World, combine_worlds


class Undecided:
    """A gradient set in every way in which it may be; ``now``: in the one that is being made, or that it came to."""

    def __init__(self, verdicts: Verdicts, worlds: Sequence[World]) -> None:
        self.worlds, self.now = worlds, worlds[0].state
        verdicts.sets.append(self)

    def settle(self, answers: Mapping[str, bool]) -> None:
        """Be what it came to, now that the host knows."""
        self.now = next(each.state for each in self.worlds if each.answers.items() <= answers.items())


def take_undecided(verdicts: Verdicts, cell: str, window: Any) -> Undecided:
    """Return what is taken of a window, whether or not it took in what the step gave: the host finds out later."""
    question = window.question
    there, absent = window.take_both()
    if question is None:
        return Undecided(verdicts, [World({}, there)])
    verdicts.commits[cell] = question
    return Undecided(verdicts, [World({cell: True}, there), World({cell: False}, absent)])


def in_ways(verdicts: Verdicts, make: Callable[[], Sequence[Any]], *sets: Undecided) -> Undecided:
    """Return what is made of gradient sets, in every way in which they may be."""
    found: list[World] = []
    for answers, worlds in combine_worlds([each.worlds for each in sets]):
        for each, world in zip(sets, worlds, strict=True):
            each.now = world.state
        found.append(World(answers, tuple(make())))
    return Undecided(verdicts, found)


def merged(verdicts: Verdicts, undecided: Undecided) -> tuple[torch.Tensor | None, ...]:
    """Return the gradients of the way in which a set is, as the device knows it: zeros where there is none."""
    found, *others = [each.state for each in undecided.worlds]
    for world, other in zip(undecided.worlds[1:], others, strict=True):
        holds, pairs = verdicts.holds(world.answers), list(zip(other, found, strict=True))
        full = [(zeros_for(new, old), zeros_for(old, new)) for new, old in pairs]
        found = tuple(chosen(holds, new, old) for new, old in full)
    return tuple(found)


def chosen(holds: torch.Tensor, gradient: torch.Tensor | None, other: torch.Tensor | None) -> torch.Tensor | None:
    """Return a gradient where something holds, else another; none where there is neither."""
    return gradient if gradient is None or other is None else torch.where(holds.to(gradient.device), gradient, other)


def zeros_for(gradient: torch.Tensor | None, other: torch.Tensor | None) -> torch.Tensor | None:
    """Return a gradient, or zeros where there is none but another has one."""
    return torch.zeros_like(other) if gradient is None and other is not None else gradient
