"""Typed reading of the plain options of a layer or function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from compiler.shapes.problem import Place, ShapeProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Plain options, defaults included; reading one as a type it does not have raises :class:`ShapeProblem`."""

    values: Mapping[str, object]
    place: Place = ()
    defaults: Mapping[str, object] = field(default_factory=dict[str, object])

    def raw(self, name: str) -> object:
        """Return the value as written, or its default, or None."""
        return self.values[name] if name in self.values else self.defaults.get(name)

    def has(self, name: str) -> bool:
        """Return whether the option is neither absent nor null."""
        return self.raw(name) is not None

    def integer(self, name: str) -> int:
        """Return a whole number."""
        value = self.raw(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise self._wrong(name, "a whole number")

    def number(self, name: str) -> int | float:
        """Return a number."""
        value = self.raw(name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return value
        raise self._wrong(name, "a number")

    def flag(self, name: str) -> bool:
        """Return true or false."""
        value = self.raw(name)
        if isinstance(value, bool):
            return value
        raise self._wrong(name, "true or false")

    def word(self, name: str) -> str:
        """Return a text."""
        value = self.raw(name)
        if isinstance(value, str):
            return value
        raise self._wrong(name, "a name")

    def sizes(self, name: str) -> tuple[int | str, ...]:
        """Return a list of whole numbers and names; one alone is a list of one."""
        value = self.raw(name)
        items = cast("Sequence[object]", value) if isinstance(value, list | tuple) else (value,)
        sizes = tuple(item for item in items if isinstance(item, int | str) and not isinstance(item, bool))
        if len(sizes) != len(items):
            raise self._wrong(name, "a list of sizes")
        return sizes

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a list of whole numbers; one alone is a list of one."""
        sizes = tuple(size for size in self.sizes(name) if isinstance(size, int))
        if len(sizes) != len(self.sizes(name)):
            raise self._wrong(name, "a list of whole numbers")
        return sizes

    def pair(self, name: str) -> tuple[int, int]:
        """Return ``(height, width)``; one number stands for both."""
        match self.integers(name):
            case (both,):
                return both, both
            case (height, width):
                return height, width
            case _:
                raise self._wrong(name, "a whole number or [height, width]")

    def _wrong(self, name: str, expected: str) -> ShapeProblem:
        found = f"`{name}: {self.raw(name)}`" if self.has(name) else f"no `{name}`"
        return ShapeProblem(self.place, found, f"`{name}` to be {expected}")
