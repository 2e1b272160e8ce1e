"""Groups of parameters: an optimizer that steps some of its parameters with another rate or weight decay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import torch

from runtime.backends.torch.library.kernels import TensorList
from runtime.backends.torch.library.optimizers import Optimizer, Wrapped
from runtime.support.patterns import gathered, shares

Change: TypeAlias = float | Callable[[int], float]
"""What is different for a group: a number, or a function of the updates applied before this one."""


def changed(options: Mapping[str, Any], changes: Mapping[str, Change], applied: int) -> dict[str, Any]:
    """Return options with what is different after so many updates: `lr_scale` and `weight_decay`, where there are such.

    ``lr_scale`` multiplies the learning rate, ``weight_decay`` takes the place of another.
    """
    now = {name: change(applied) if callable(change) else change for name, change in changes.items()}
    found = dict(options)
    if "lr" in found and "lr_scale" in now:
        found["lr"] = found["lr"] * now["lr_scale"]
    if "weight_decay" in found and "weight_decay" in now:
        found["weight_decay"] = now["weight_decay"]
    return found


class Grouped(Optimizer):
    """An optimizer of the library in parts, one per group: each steps its parameters as one list.

    ``groups`` are pairs of parameters and what is different for them: ``lr_scale``, ``weight_decay``.
    """

    def __init__(
        self,
        rule: Callable[..., Optimizer],
        parameters: Iterable[torch.Tensor],
        groups: Sequence[tuple[Sequence[torch.Tensor], Mapping[str, Change]]],
        /,
        **options: Any,
    ) -> None:
        super().__init__(parameters, options, False)
        self.inside = options.get("momentum_form") == "lr_inside"
        self.shares = shares(self.parameters, groups)
        self.parts = [rule([self.parameters[at] for at in places], **options) for places, _ in self.shares]

    @property
    def slots(self) -> dict[str, list[Any]]:
        """Return the slots of all parts, in the order of the parameters."""
        names = dict.fromkeys(name for part in self.parts for name in part.slots)
        parts = [(places, part.slots) for (places, _), part in zip(self.shares, self.parts, strict=True)]
        return {name: gathered([(places, slots[name]) for places, slots in parts]) for name in names}

    def keep(self) -> Any:
        """Return how often it was applied, and what the parts keep."""
        return self.applied, [part.keep() for part in self.parts]

    def put(self, kept: Any) -> None:
        """Keep what :meth:`keep` gave."""
        self.applied, parts = kept
        for part, each in zip(self.parts, parts, strict=True):
            part.put(each)

    def step(self, gradients: TensorList) -> None:
        """Step every part with the options as they are now."""
        for (places, changes), part in zip(self.shares, self.parts, strict=True):
            now = {name: self.options.get(name, value) for name, value in part.options.items()}
            part.options = changed(now, changes, self.applied)
            part.applied = self.applied
            part.step([gradients[at] for at in places])


class GroupedWrapped(Wrapped):
    """An optimizer with torch.optim's interface, with groups of its own: `param_groups`.

    Raises ValueError where its rule does not have an option that a group changes.
    """

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        rule: Callable[..., torch.optim.Optimizer],
        groups: Sequence[tuple[Sequence[torch.Tensor], Mapping[str, Change]]],
        /,
        **options: Any,
    ) -> None:
        parameters = list(parameters)
        self.shares = shares(parameters, groups)
        listed = [{"params": [parameters[at] for at in places]} for places, _ in self.shares]
        super().__init__(parameters, lambda _, **first: rule(listed, **first), **options)
        self.base = dict(self.optimizer.param_groups[0])
        for group, (_, changes) in zip(self.optimizer.param_groups, self.shares, strict=True):
            missing = [name for name in changes if name.removesuffix("_scale") not in group]
            if missing:
                raise ValueError(f"{missing[0]}: {type(self.optimizer).__name__} has no option to change by it")
            group.update(changed(group, changes, 0))

    def follow(self) -> None:
        """Give every group the options that change, as they are now."""
        now = {name: self.options[name] for name in self.schedules}
        for group, (_, changes) in zip(self.optimizer.param_groups, self.shares, strict=True):
            group.update(changed({**self.find_base(changes), **now}, changes, self.applied))

    def find_base(self, changes: Mapping[str, Change]) -> Mapping[str, Any]:
        """Return the options of all groups from which those are made that follow a schedule in one."""
        moving = (name.removesuffix("_scale") for name, change in changes.items() if callable(change))
        return {name: self.base[name] for name in moving}
