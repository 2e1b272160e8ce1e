"""Patterns: some of a model's parameters by their names, and the groups that they make."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from runtime.support.ties import T

C = TypeVar("C")
"""What is different for a group, or its rate."""


def matching(named: Iterable[tuple[str, T]], *patterns: str) -> list[T]:
    """Return the parameters in whose names one of some regular expressions is found."""
    return [parameter for name, parameter in named if any(re.search(pattern, name) for pattern in patterns)]


def without(parameters: Iterable[T], others: Sequence[T]) -> list[T]:
    """Return those parameters that are not among others."""
    known = {id(each) for each in others}
    return [each for each in parameters if id(each) not in known]


def among(parameters: Iterable[T], others: Sequence[T]) -> list[T]:
    """Return those parameters that are among others."""
    known = {id(each) for each in others}
    return [each for each in parameters if id(each) in known]


def shares(
    parameters: Sequence[T], groups: Sequence[tuple[Sequence[T], Mapping[str, C]]]
) -> list[tuple[list[int], Mapping[str, C]]]:
    """Return the places of the parameters of each group, with what is different for it; those of none come first."""
    owners = {id(each): number for number, (members, _) in enumerate(groups, 1) for each in members}
    found: list[list[int]] = [[] for _ in range(len(groups) + 1)]
    for place, parameter in enumerate(parameters):
        found[owners.get(id(parameter), 0)].append(place)
    changes: list[Mapping[str, C]] = [{}, *(change for _, change in groups)]
    return [(places, change) for places, change in zip(found, changes, strict=True) if places]


def gathered(lists: Iterable[tuple[Sequence[int], Sequence[T]]]) -> list[T]:
    """Return what stands at places, as one list in the order of the places."""
    pairs = sorted((pair for places, each in lists for pair in zip(places, each, strict=True)), key=place_of)
    return [each for _, each in pairs]


def place_of(pair: tuple[int, object]) -> int:
    """Return the place of a pair of a place and what stands there."""
    return pair[0]


def rates(parameters: Iterable[T], rest: C, *groups: tuple[Sequence[T], C]) -> list[C]:
    """Return a rate for each parameter: that of the first group that has it, else that of the rest."""
    found = {id(each): rate for members, rate in reversed(groups) for each in members}
    return [found.get(id(each), rest) for each in parameters]
