"""Ties: lists over models that share parameters, in which every parameter stands once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def once(tensors: Sequence[T]) -> list[T]:
    """Return tensors without repeats, in order: what models share is one parameter, with one gradient and one step."""
    return list({id(each): each for each in tensors}.values())


def places(part: Sequence[T], whole: Sequence[T]) -> list[int]:
    """Return where the tensors of a part stand in a whole."""
    known = {id(each): place for place, each in enumerate(whole)}
    return [known[id(each)] for each in part]


def taken(gradients: Sequence[T], places: Sequence[int]) -> tuple[T, ...]:
    """Return the gradients at some places of a set."""
    return tuple(gradients[place] for place in places)


def common_places(part: Sequence[object], other: Sequence[object]) -> list[tuple[int, int]]:
    """Return the places, in both lists, of what is in both."""
    known = {id(each): place for place, each in enumerate(other)}
    return [(place, known[id(each)]) for place, each in enumerate(part) if id(each) in known]
