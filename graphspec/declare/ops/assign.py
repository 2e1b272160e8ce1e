"""``assign``: write a state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from graphspec.declare.inputs import OperandField
from graphspec.declare.ops.base import ModeName, OpBase, Reference


class AssignOp(OpBase):
    """Write a state, once per step; who reads it before reads what it was."""

    default_modes: ClassVar[tuple[ModeName, ...]] = ("train",)

    assign: str
    """The state that is written."""
    value: OperandField
    """What it becomes: a value, an input or a state of its shape and type, or a number everywhere."""

    @property
    def kind(self) -> Literal["assign"]:
        """Return the key of this kind."""
        return "assign"

    def defines(self, name: str) -> tuple[str, ...]:
        """Return nothing: the state is read by its own name."""
        return ()

    def operands(self) -> Iterator[Reference]:
        """Yield the state and the value."""
        yield Reference(path=("assign",), name=self.assign, role="state")
        if isinstance(self.value, str):
            yield Reference(path=("value",), name=self.value, role="value")
