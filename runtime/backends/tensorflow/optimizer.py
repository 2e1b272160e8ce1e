"""Access to the optimizers of an executed module of TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from runtime.access import OptimizerAccess, Slots
from runtime.backends.tensorflow.slots import Wrapping, slot_tensors
from runtime.holding.naming import name_slots
from runtime.support.clocks import Clock


@final
@dataclass(slots=True, kw_only=True)
class TensorFlowOptimizer(OptimizerAccess):
    """An optimizer of the library; its learning rate is a variable, so that no graph changes with it."""

    cell: str
    shell: Any
    names: Mapping[int, str]
    clock: Clock
    steps: Any = None
    """The variable of the finished train steps, where schedules read them; every step begins with writing it."""
    replaced: float | None = field(default=None)
    """What a rate that was set stands in for: a number, or NaN where a schedule gives it."""

    @property
    def native(self) -> object:
        """Return the optimizer as the emitted module made it."""
        return self.shell

    @property
    def is_scheduled(self) -> bool:
        """Return whether a schedule gives the learning rate."""
        return callable(self.shell.options.get(self.shell.rate_name))

    @property
    def variable(self) -> Any:
        """Return the variable that holds the learning rate."""
        shell: Any = self.shell
        is_keras = isinstance(self.shell, Wrapping) and not self.is_scheduled
        return shell.optimizer.learning_rate if is_keras else shell.rate

    def rate(self) -> float:
        """Return the learning rate of the next update."""
        if self.steps is not None:
            self.steps.assign(self.clock.steps.get("train", 0))
        return float(self.shell.next_rate(self.shell.applied.read_value()))

    def used(self) -> float:
        """Return the learning rate of the last update."""
        return float(self.shell.used) if self.is_scheduled else self.rate()

    def set_rate(self, rate: float | None) -> None:
        """Set the learning rate of the updates to come."""
        if self.replaced is None:
            self.replaced = math.nan if self.is_scheduled else self.rate()
        self.variable.assign(self.replaced if rate is None else rate)

    def applied(self) -> int:
        """Return how many updates were applied."""
        return int(self.shell.applied)

    def slots(self) -> Slots:
        """Return copies of what is kept for the parameters."""
        known = frozenset(name_slots(self.shell.parameters, self.names))
        found: dict[str, dict[str, object]] = {}
        for path, variable in slot_tensors(self.cell, self.shell, self.names):
            slot, _, name = path.removeprefix(f"optimizers.{self.cell}.").partition(".")
            if name in known:
                found.setdefault(name, {})[slot] = variable.read_value()
        return found
