"""Access: what a framework tells of one optimizer of a step, and what of it may be set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

Slots = Mapping[str, Mapping[str, object]]
"""Tensors by parameter, then by slot."""


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
    def applied(self) -> int:
        """Return how many updates were applied."""

    @abstractmethod
    def slots(self) -> Slots:
        """Return copies of what is kept for the parameters."""
