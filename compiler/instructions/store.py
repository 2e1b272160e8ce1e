"""``store``: write a state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from compiler.instructions.base import Effect
from compiler.instructions.wording import export_operand, find_names
from compiler.operands import Operand
from compiler.published import INPUTS, TEXT, Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Store(Effect):
    """Write a state: it becomes the operand, apart from every graph; whoever read it before keeps what it was."""

    state: str
    value: Operand

    FIELDS: ClassVar[Object] = {"state": TEXT, "inputs": INPUTS}

    @property
    def operands(self) -> tuple[str, ...]:
        """Return what it becomes, where that is a value."""
        return find_names((self.value,))

    @property
    def settings(self) -> tuple[object, ...]:
        """Return what it becomes."""
        return (self.value,)

    @property
    def phrase(self) -> str:
        """Return what the state becomes."""
        return f"{self.state} <- {export_operand(self.value)}"

    @property
    def title(self) -> str:
        """Return ``assign count``."""
        return f"assign {self.state}"

    def export(self) -> Object:
        """Return what the state becomes."""
        return {"state": self.state, "inputs": [export_operand(self.value)]}
