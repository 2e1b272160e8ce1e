"""Stored tensors: what state needs of a tensor of any framework."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from runtime.state import Array


class Stored(Protocol):
    """A tensor that training changes, as an array of the host: read as a copy, written in place."""

    def describe(self) -> tuple[tuple[int, ...], str]:
        """Return shape and type of the array."""
        ...

    def read(self) -> Array:
        """Return a copy as an array."""
        ...

    def write(self, array: Array) -> None:
        """Take over an array of this shape and type."""
