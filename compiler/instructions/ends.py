"""``release`` and ``emit``: where values end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from compiler.instructions.base import Effect
from compiler.published import NAMES, Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(Effect):
    """Forget values after their last use (``op`` is the op of that last use)."""

    values: tuple[str, ...]

    FIELDS: ClassVar[Object] = {"values": NAMES}

    @property
    def operands(self) -> tuple[str, ...]:
        """Return nothing: what is forgotten is not read."""
        return ()

    @property
    def phrase(self) -> str:
        """Return the values."""
        return ", ".join(self.values)

    def export(self) -> Object:
        """Return the values."""
        return {"values": list(self.values)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Emit(Effect):
    """Return the named values, detached, as the step's outputs."""

    values: tuple[str, ...]

    FIELDS: ClassVar[Object] = {"values": NAMES}

    @property
    def operands(self) -> tuple[str, ...]:
        """Return the values."""
        return self.values

    @property
    def phrase(self) -> str:
        """Return the values."""
        return ", ".join(self.values)

    def export(self) -> Object:
        """Return the values."""
        return {"values": list(self.values)}
