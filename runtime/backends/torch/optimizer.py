"""Access to the optimizers of an executed module of PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, final, runtime_checkable

import torch

from runtime.access import OptimizerAccess, Slots
from runtime.holding.naming import name_slots

RATE = "lr"
"""What PyTorch calls the learning rate, in options and groups."""


@runtime_checkable
class Sharing(Protocol):
    """What an optimizer has that gives groups of its parameters rates of their own (emitted classes are their own)."""

    shares: Any


@final
@dataclass(slots=True, kw_only=True)
class TorchOptimizer(OptimizerAccess):
    """An optimizer of the library, or the library's shell around one with torch.optim's interface.

    A rate that is set becomes a schedule, as the options are that the spec lets change: it is no state then.
    """

    shell: Any
    groups: tuple[dict[str, Any], ...]
    """Those of the optimizer inside the shell; none without one."""
    names: Mapping[int, str]
    replaced: Mapping[str, Any] | None = field(default=None)
    """What a rate that was set stands in for."""

    @classmethod
    def of(cls, shell: Any, *, is_shell: bool, names: Mapping[int, str]) -> TorchOptimizer:
        """Return the access to an optimizer that was just made."""
        return cls(shell=shell, groups=tuple(shell.optimizer.param_groups) if is_shell else (), names=names)

    @property
    def native(self) -> object:
        """Return the optimizer as the emitted module made it."""
        return self.shell

    def rate(self) -> float | None:
        """Return the learning rate of the next update."""
        if RATE in self.shell.schedules:
            return float(self.shell.schedules[RATE](self.shell.applied))
        return self.used()

    def used(self) -> float | None:
        """Return the learning rate of the last update; of groups of the spec the one that theirs are scaled from."""
        written = self.shell.options.get(RATE)
        is_scaled = isinstance(self.shell, Sharing) and written is not None
        rate = self.groups[0].get(RATE) if self.groups and not is_scaled else written
        return None if rate is None or callable(rate) else float(rate)

    def set_rate(self, rate: float | None) -> None:
        """Set the learning rate of the updates to come."""
        if rate is None:
            self._give_back()
            return
        if self.replaced is None:
            kept = {"options": self.shell.options, "schedules": self.shell.schedules}
            found = {name: each[RATE] for name, each in kept.items() if RATE in each}
            self.replaced = {**found, "groups": [group.get(RATE) for group in self.groups]}
        self.shell.schedules[RATE] = lambda n: rate

    def _give_back(self) -> None:
        """Put back what a rate stands in for."""
        if self.replaced is None:
            return
        for name, entries in (("options", self.shell.options), ("schedules", self.shell.schedules)):
            entries.pop(RATE, None)
            entries.update({RATE: self.replaced[name]} if name in self.replaced else {})
        for group, rate in zip(self.groups, self.replaced["groups"], strict=True):
            group[RATE] = rate
        self.replaced = None

    def applied(self) -> int:
        """Return how many updates were applied."""
        return self.shell.applied

    def slots(self) -> Slots:
        """Return copies of what is kept for the parameters."""
        found: dict[str, dict[str, object]] = {}
        for slot, name, value in self._entries():
            found.setdefault(name, {})[slot] = value.detach().clone()
        return found

    def _entries(self) -> Iterator[tuple[str, str, torch.Tensor]]:
        """Yield (slot, parameter, tensor)."""
        named = name_slots(self.shell.parameters, self.names)
        for slot, values in self.shell.slots.items():
            entries = zip(named, values, strict=True)
            yield from ((slot, name, value) for name, value in entries if isinstance(value, torch.Tensor))
