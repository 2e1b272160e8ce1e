"""The group of parameters: some of a model's, by a pattern of their names, and what is different for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.operands import ScheduleDecl


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDecl:
    """The parameters of a model in whose names a pattern is found, and what is different for them in updates.

    Schedules are in ticks of their clocks, at the tempo of the optimizer that steps the group.
    """

    model: str
    index: int
    """Its place among the groups of the model."""
    match: str
    lr_scale: float | ScheduleDecl = 1.0
    weight_decay: float | ScheduleDecl | None = None
    """In place of the optimizer's; None leaves that."""
    frozen: bool = False
    """No gradient is taken for them and nothing steps them."""

    @property
    def changes(self) -> Mapping[str, float | ScheduleDecl]:
        """Return the options that are different, by the names of the language."""
        scale: dict[str, float | ScheduleDecl] = {} if self.lr_scale == 1.0 else {"lr_scale": self.lr_scale}
        return scale if self.weight_decay is None else {**scale, "weight_decay": self.weight_decay}

    def spell(self, optimizer: str, option: str) -> str:
        """Return the name of an option of it in words of an optimizer: ``groups.1.lr_scale``."""
        of = "" if self.model == optimizer else f"{self.model}."
        return f"{of}groups.{self.index}.{option}"
