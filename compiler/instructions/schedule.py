"""``schedule``: a number that changes while training, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from compiler.instructions.base import InstructionBase
from compiler.operands import Scheduled
from compiler.published import NAMES, Object


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(InstructionBase):
    """Give the number of a schedule as a value without axes, of the type of the step."""

    output: str
    number: Scheduled

    FIELDS: ClassVar[Object] = {"outputs": NAMES}

    @property
    def defines(self) -> tuple[str, ...]:
        """Return the number."""
        return (self.output,)

    @property
    def operands(self) -> tuple[str, ...]:
        """Return nothing: it reads its clock alone."""
        return ()

    @property
    def recorded(self) -> bool:
        """Return that the number is a constant."""
        return False

    @property
    def settings(self) -> tuple[object, ...]:
        """Return the number."""
        return (self.number,)

    @property
    def phrase(self) -> str:
        """Return what the number follows."""
        return f"{self.output} = {self.number.schedule.kind} schedule"

    @property
    def title(self) -> str:
        """Return ``schedule linear``."""
        return f"schedule {self.number.schedule.kind}"

    def export(self) -> Object:
        """Return the value."""
        return {"outputs": [self.output]}
