"""Read the fields of a JSON object by the types that they must have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from runtime.state import Plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Fields:
    """The fields of an object; every method raises ValueError where a field is missing or of another type."""

    content: Mapping[str, Plain]

    def text(self, key: str) -> str:
        """Return a text."""
        value = self.content.get(key)
        return value if isinstance(value, str) else self._refuse(key, "a text")

    def whole(self, key: str) -> int:
        """Return a whole number."""
        value = self.content.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        return self._refuse(key, "a whole number")

    def size(self, key: str) -> int:
        """Return a whole number from 0 up."""
        value = self.whole(key)
        return value if value >= 0 else self._refuse(key, "a number from 0 up")

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts."""
        value = self.content.get(key)
        found = [item for item in value if isinstance(item, str)] if isinstance(value, list) else None
        return self._refuse(key, "a list of texts") if found != value or found is None else tuple(found)

    def sizes(self, key: str) -> tuple[int, ...]:
        """Return a list of whole numbers from 0 up."""
        value = self.content.get(key)
        items = value if isinstance(value, list) else [None]
        found = [item for item in items if isinstance(item, int) and not isinstance(item, bool) and item >= 0]
        return tuple(found) if len(found) == len(items) else self._refuse(key, "a list of sizes")

    def mapping(self, key: str) -> dict[str, Plain]:
        """Return an object as it is."""
        value = self.content.get(key)
        return value if isinstance(value, dict) else self._refuse(key, "an object")

    def part(self, key: str) -> Fields:
        """Return the fields of an object."""
        return Fields(content=self.mapping(key))

    def text_mapping(self, key: str) -> dict[str, str]:
        """Return an object whose values are texts."""
        part = self.part(key)
        return {name: part.text(name) for name in part.content}

    def _refuse(self, key: str, expected: str) -> NoReturn:
        raise ValueError(f"{key!r} is not {expected}" if key in self.content else f"{key!r} is missing")
