"""``start``: begin to combine values over replicas, while the step continues."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from msgspec import Struct

from compiler.ir.instructions.base import InstructionBase
from compiler.ir.value import Fields, Names, Object

ROWS = "batch#rows"
"""The message with which a step begins: how many rows each replica has."""
Collective: TypeAlias = Literal["sum", "gather", "compress"]
"""Values are added up (of verdicts: all are true), or their rows are gathered in the order of ranks. A set that is
compressed is added up as far as it is sent, and the rest of it is kept."""


class Sent(Struct, frozen=True, kw_only=True):
    """A value of this replica in a message, and what it becomes: usually one value of all replicas."""

    value: str
    wholes: tuple[str, ...]
    of: str
    """The value of the spec that it is of."""
    axis: int = 0
    """The axis of its rows, where these are gathered."""
    models: tuple[str, ...] = ()
    """It is a gradient set over these."""


class Start(InstructionBase, frozen=True, kw_only=True):
    """Begin to combine values over replicas, in one message; what has this ``message`` waits for its end."""

    output: str
    collective: Collective
    parts: tuple[Sent, ...]

    FIELDS: ClassVar[Fields] = {"collective": Literal["sum", "gather", "compress"], "inputs": Names, "outputs": Names}

    @property
    def keeps_rest_of(self) -> str:
        """Return its message, where the set in it is compressed."""
        return self.output if self.collective == "compress" else ""

    @property
    def has_sets(self) -> bool:
        """Return whether it sends gradient sets, which are large: they leave as soon as they are there."""
        return any(part.models for part in self.parts)

    @property
    def defines(self) -> tuple[str, ...]:
        """Return the message."""
        return (self.output,)

    @property
    def operands(self) -> tuple[str, ...]:
        """Return the values of this replica."""
        return tuple(part.value for part in self.parts)

    @property
    def recorded(self) -> bool:
        """Return False: no gradient runs through a message."""
        return False

    @property
    def phrase(self) -> str:
        """Return what is combined, and how."""
        return f"{self.output} = {self.collective}({', '.join(self.operands)})"

    def export(self) -> Object:
        """Return what is combined, how, and the message."""
        return {"collective": self.collective, "inputs": [*self.operands], "outputs": [self.output]}
