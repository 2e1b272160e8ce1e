"""The error of shape rules: what was found, what was expected, what to write instead."""

from __future__ import annotations

from typing import TypeAlias

Place: TypeAlias = tuple[str | int, ...]
"""Keys and indices below the thing that is checked: the layer list of a model, or the fields of an op."""


class ShapeProblem(Exception):
    """A shape or dtype that is certainly wrong, at a place inside the model or op that is checked."""

    def __init__(self, path: Place, found: str, expected: str, help: str = "") -> None:
        super().__init__(f"found {found}, expected {expected}" + (f"; {help}" if help else ""))
        self.path = path
        self.found = found
        self.expected = expected
        self.help = help
