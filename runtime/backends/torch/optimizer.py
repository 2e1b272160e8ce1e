"""Access to the optimizers of an executed module of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, final, runtime_checkable

import torch

from compiler.ir.program import OptimizerDecl
from runtime.backends.torch.contents import set_applied
from runtime.backends.torch.library.kernels import begin_slots
from runtime.backends.torch.library.optimizers import make_slot
from runtime.engine.backend import OptimizerAccess, Place, Slots, Value
from runtime.engine.contents import MOST_STEPS, STEP, name_slots
from runtime.options import RATE


@runtime_checkable
class Sharing(Protocol):
    """The interface of an optimizer with learning rates for groups (emitted modules have classes of their own)."""

    shares: Any


@final
@dataclass(slots=True, kw_only=True)
class TorchOptimizer(OptimizerAccess):
    """An optimizer of the library, or the library's wrapper of one with torch.optim's interface.

    A number that is set becomes a schedule, like options that change in the spec: it is then not state.
    """

    shell: Any
    groups: tuple[dict[str, Any], ...]
    """The groups of the wrapped optimizer; none without one."""
    names: Mapping[int, str]
    builtin: bool
    unlike: int
    """How many groups with different options it has."""
    replaced: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """The original values of options that were set."""
    changed: dict[Place, Any] = field(default_factory=dict[Place, Any])
    """The original values of numbers of groups that were set."""

    @classmethod
    def of(cls, shell: Any, *, is_shell: bool, names: Mapping[int, str], decl: OptimizerDecl) -> TorchOptimizer:
        """Return the access to an optimizer that was just made."""
        groups = tuple(shell.optimizer.param_groups) if is_shell else ()
        return cls(shell=shell, groups=groups, names=names, builtin=decl.builtin, unlike=len(decl.find_unlike()))

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
        """Return the learning rate of the last update; with groups in the spec, the one that theirs are scaled from."""
        written = self.shell.options.get(RATE)
        is_scaled = isinstance(self.shell, Sharing) and written is not None
        rate = self.groups[0].get(RATE) if self.groups and not is_scaled else written
        return None if rate is None or callable(rate) else float(rate)

    def set_rate(self, rate: float | None) -> None:
        """Set the learning rate of the updates to come."""
        self._set_option(RATE, rate)

    def number(self, place: Place) -> Value:
        """Return a number of the next update."""
        options = {**self.shell.options, **self.shell.schedules}
        held = options if place.group is None else self._changes(place.group)
        found: Any = held[place.option]
        now: Any = found(self.shell.applied) if callable(found) else found
        return tuple(map(float, now)) if isinstance(now, (tuple, list)) else float(now)

    def set_number(self, place: Place, value: Value | None) -> None:
        """Set a number of the updates to come."""
        if place.group is None:
            self._set_option(place.option, value)
            return
        changes = self._changes(place.group)
        written: Any = self.changed.setdefault(place, changes[place.option])
        chosen = written if value is None else value
        changes[place.option] = chosen if callable(chosen) else lambda n: chosen

    def why_fixed(self, place: Place) -> str:
        """Return why a number cannot be set; empty where it can."""
        if place.group is not None:
            is_whole = len(self._find_shares()) > place.group
            return "" if is_whole else "the parameters of some groups are those of others"
        is_kept = all(place.option in group for group in self.groups)
        return "" if is_kept else f"{type(self.shell.optimizer).__name__} keeps none under this name in its groups"

    def _set_option(self, name: str, value: Value | None) -> None:
        """Set an option to a number; None restores the original value."""
        kept = {"options": self.shell.options, "schedules": self.shell.schedules}
        if value is None:
            replaced = self.replaced.pop(name, None)
            if replaced is not None:
                for key, entries in kept.items():
                    entries.pop(name, None)
                    entries.update({name: replaced[key]} if key in replaced else {})
                for group, original in zip(self.groups, replaced["groups"], strict=True):
                    group[name] = original
            return
        if name not in self.replaced:
            found = {key: each[name] for key, each in kept.items() if name in each}
            self.replaced[name] = {**found, "groups": [group.get(name) for group in self.groups]}
        self.shell.schedules[name] = lambda n: value

    def _find_shares(self) -> list[Any]:
        """Return the options of each group; nothing where some groups have no parameters of their own."""
        shares = [changes for _, changes in self.shell.shares if changes]
        return shares if len(shares) == self.unlike else []

    def _changes(self, group: int) -> Any:
        """Return the options of a group."""
        return self._find_shares()[group]

    def applied(self) -> int:
        """Return how many updates were applied."""
        return self.shell.applied

    def why_counted(self) -> str:
        """Return why the number of updates cannot be set; empty where it can."""
        return "" if self.builtin else f"{type(self.shell.optimizer).__name__} counts its updates by itself"

    def set_applied(self, applied: int, first: Mapping[str, float]) -> None:
        """Set how many updates were applied, and the slots that are derived from it."""
        set_applied(self.shell, applied)
        made = self.shell.optimizer if self.groups else None  # one of PyTorch's own classes
        if made is not None and not applied:
            made.state.clear()
        elif made is not None:
            begin_slots(made)
            for state in made.state.values():
                if STEP in state:
                    state[STEP].fill_(min(applied, MOST_STEPS))
        elif not applied:
            for slot, values in self.shell.slots.items():
                for value in values:
                    if slot != STEP and value is not None:
                        value.copy_(make_slot(value, first.get(slot, 0.0)))

    def slots(self) -> Slots:
        """Return copies of the slots of the parameters."""
        found: dict[str, dict[str, object]] = {}
        named = name_slots(self.shell.parameters, self.names)
        for slot, values in self.shell.slots.items():
            for name, value in zip(named, values, strict=True):
                if isinstance(value, torch.Tensor):
                    found.setdefault(name, {})[slot] = value.detach().clone()
        return found
