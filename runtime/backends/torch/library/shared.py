"""Gradients of several updates for the parameters that they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runtime.backends.torch.library.gradients import add_sets
from runtime.backends.torch.library.missing import over_present


def add_shared(gradients: Sequence[Any], *others: tuple[Sequence[Any], Sequence[tuple[int, int]]]) -> tuple[Any, ...]:
    """Return gradients with those that other sets have for the same parameters added, by their places in both."""
    found = list(gradients)
    for other, places in others:
        pairs = [found[own] for own, _ in places], [other[place] for _, place in places]
        for (own, _), total in zip(places, over_present(add_sets, pairs) if places else (), strict=True):
            found[own] = total
    return tuple(found)
