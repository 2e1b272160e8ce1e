"""Access: what a framework tells of one optimizer of a step, and what of it may be set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Value: TypeAlias = float | tuple[float, ...]
"""What an option is: a number, or several."""
Slots = Mapping[str, Mapping[str, object]]
"""Tensors by parameter, then by slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a number of an optimizer is: an option of its rule, or what is different for a group of parameters."""

    option: str
    group: int | None = None
    """Which of the optimizer's groups, of which those are one that say the same."""


class OptimizerAccess(ABC):
    """An optimizer of one framework, as :class:`runtime.optimizer.Optimizer` shows it."""

    @property
    @abstractmethod
    def native(self) -> object:
        """Return the object that steps the parameters."""

    @abstractmethod
    def rate(self) -> float | None:
        """Return the learning rate of the next update; None where the optimizer has none."""

    @abstractmethod
    def used(self) -> float | None:
        """Return the learning rate of the last update, if none was set since; None where the optimizer has none."""

    @abstractmethod
    def set_rate(self, rate: float | None) -> None:
        """Set the learning rate of the updates to come; None gives back what the spec says."""

    @abstractmethod
    def number(self, place: Place) -> Value:
        """Return a number of the next update, its schedule evaluated."""

    @abstractmethod
    def set_number(self, place: Place, value: Value | None) -> None:
        """Set a number of the updates to come; None gives back what the spec says."""

    @abstractmethod
    def why_fixed(self, place: Place) -> str:
        """Return why a number cannot be set; empty where it can."""

    @abstractmethod
    def applied(self) -> int:
        """Return how many updates were applied."""

    @abstractmethod
    def set_applied(self, applied: int, first: Mapping[str, float]) -> None:
        """Set how many updates were applied; at 0 its slots begin anew, at ``first`` or at 0."""

    @abstractmethod
    def why_counted(self) -> str:
        """Return why the number of updates cannot be set; empty where it can."""

    @abstractmethod
    def slots(self) -> Slots:
        """Return copies of what is kept for the parameters."""
