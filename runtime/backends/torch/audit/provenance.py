"""What is known about a value because of where it comes from; it follows the value through calls."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import torch

from runtime.audit.trace import Source


class Copy(NamedTuple):
    """What a value is that is made of one cell alone: a multiple of it, or of what it was at several times."""

    cell: int
    backwards: int
    """How many backwards had begun when the cell was read, or read last."""
    mixture: int = 0
    """The number of the mixture that it is a multiple of, 0 for none."""


class Tag(NamedTuple):
    """Where the graph of a value was cut, the tensors it is made of, and the factor of a loss scaler."""

    cuts: frozenset[int] = frozenset()
    sources: frozenset[Source] = frozenset()
    scale: float | None = None
    copy: Copy | None = None
    forwards: frozenset[int] = frozenset()
    """The events of forwards without a graph that it is made of, where they move statistics."""


EMPTY = Tag()


class Tags:
    """The tags of values, by object; they go with the values."""

    def __init__(self) -> None:
        self._tags: dict[int, tuple[weakref.ref[torch.Tensor], Tag]] = {}

    def __bool__(self) -> bool:
        """Return whether any value has one."""
        return bool(self._tags)

    def of(self, value: Any) -> Tag:
        """Return the tag of a value."""
        known = self._tags.get(id(value))
        return known[1] if known is not None and known[0]() is value else EMPTY

    def put(self, value: torch.Tensor, tag: Tag) -> None:
        """Give a value a tag."""
        number, tags = id(value), self._tags
        if tag == EMPTY:
            tags.pop(number, None)
        else:
            tags[number] = (weakref.ref(value, lambda _: tags.pop(number, None)), tag)
