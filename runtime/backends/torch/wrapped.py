"""State of optimizers with torch.optim's interface: slots by parameter, and the changes of their groups."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from msgspec import Struct

from runtime.backends.torch.tensors import decode, encode

PARAMETERS = "params"
"""The key of the parameters of a group."""
OWN_KEYS = ("state", "param_groups")
"""The keys of every optimizer's ``state_dict``; a class may add to them."""


class WrappedState(Struct, kw_only=True):
    """A wrapped optimizer, the names of its parameters, and its groups as they were made.

    Options of a group in the spec are not state: a resumed run may have others. State is what steps changed.
    """

    optimizer: torch.optim.Optimizer
    scheduled: Collection[str]
    """Options that follow a schedule, or were set by hand: they are set before each step."""
    changes: tuple[Mapping[str, Any], ...]
    """The options of each group; those that follow a schedule or were set by hand are set before each step."""
    names: Mapping[torch.Tensor, str]
    groups: tuple[Mapping[str, Any], ...]
    host: Sequence[str] | None = None
    """The slots that stay on the host, where the restored state says so."""
    shards: Any = None
    """The register of the shards that the parameters are; None where they are whole."""

    @classmethod
    def of(cls, shell: Any, names: Sequence[str], shards: Any = None) -> WrappedState:
        """Return the wrapper of an optimizer that was just made."""
        groups = tuple(copy.deepcopy(_options(group)) for group in shell.optimizer.param_groups)
        return cls(
            optimizer=shell.optimizer,
            scheduled=shell.schedules.keys(),
            changes=tuple(each for _, each in getattr(shell, "shares", ())) or ({},) * len(groups),
            names=dict(zip(shell.parameters, names, strict=True)),
            groups=groups,
            shards=shards,
        )

    def slots(self) -> dict[str, dict[str, Any]]:
        """Return the state of the parameters: by slot, then by parameter."""
        found: dict[str, dict[str, Any]] = {}
        for parameter, name in self.names.items():
            for slot, value in self.optimizer.state.get(parameter, {}).items():
                if self.shards is not None and isinstance(value, torch.Tensor):
                    value = self.shards.gather(value, parameter)
                found.setdefault(slot, {})[name] = encode(value)
        return found

    def put_slots(self, slots: Any) -> None:
        """Restore the state of :meth:`slots`."""
        group = self.optimizer.param_groups[0]
        # What was saved on the host does not say: torch's own rule decides which slots stay there.
        own = () if group.get("capturable") or group.get("fused") else ("step",)
        hosted = own if self.host is None else self.host
        for parameter, name in self.names.items():
            self.optimizer.state.pop(parameter, None)
            for slot, values in slots.items():
                if name in values:
                    device = torch.device("cpu") if slot in hosted else parameter.device
                    value = decode(values[name], device)
                    if self.shards is not None and isinstance(value, torch.Tensor) and value.ndim:
                        value = self.shards.take(value, parameter).clone()
                    self.optimizer.state[parameter][slot] = value

    def habits(self) -> dict[str, Any]:
        """Return the rest: changes of the groups by steps, state that belongs to no parameter, slots on the host."""
        groups = zip(self.optimizer.param_groups, self.groups, self.changes, strict=True)
        loose = {key: value for key, value in self.optimizer.state.items() if not isinstance(key, torch.Tensor)}
        more = {key: value for key, value in self.optimizer.state_dict().items() if key not in OWN_KEYS}
        is_remote = any(parameter.device.type != "cpu" for parameter in self.names)
        hosted = {
            slot
            for parameter in self.names
            for slot, value in self.optimizer.state.get(parameter, {}).items()
            if isinstance(value, torch.Tensor) and value.device.type == "cpu"
        }
        return {
            "groups": [encode(dict(self._changed(*each))) for each in groups],
            "loose": encode(loose),
            "more": encode(more),
            "host": sorted(hosted) if is_remote else None,
        }

    def put_habits(self, habits: Any) -> None:
        """Restore what :meth:`habits` returned; before the slots, which a class's own way of loading may convert."""
        self.host = habits["host"]
        if habits["more"]:
            self.optimizer.load_state_dict({**self.optimizer.state_dict(), **decode(habits["more"])})
        for key in [each for each in self.optimizer.state if not isinstance(each, torch.Tensor)]:
            del self.optimizer.state[key]
        self.optimizer.state.update(decode(habits["loose"]))
        found = habits["groups"]
        if len(found) != len(self.groups):
            if any(found):
                raise ValueError(f"groups: options of {len(found)} groups were changed, there are {len(self.groups)}")
            found = [{}] * len(self.groups)
        for group, made, changed in zip(self.optimizer.param_groups, self.groups, found, strict=True):
            for key in _options(group):
                del group[key]
            group.update({**copy.deepcopy(dict(made)), **decode(changed)})

    def _changed(
        self, group: Mapping[str, Any], made: Mapping[str, Any], changes: Mapping[str, Any]
    ) -> Iterator[tuple[str, Any]]:
        """Yield the options of a group that have changed since it was made."""
        moving = {*self.scheduled, *(name.removesuffix("_scale") for name, each in changes.items() if callable(each))}
        for key, value in _options(group).items():
            if key in moving:
                continue
            old = made.get(key, ...)
            if isinstance(value, torch.Tensor) and isinstance(old, torch.Tensor):
                is_same = torch.equal(value, old)
            else:  # what may hold other objects counts as changed
                is_plain = value is None or isinstance(value, (bool, int, float, str, tuple))
                is_same = value is old or (is_plain and type(value) is type(old) and bool(value == old))
            if not is_same:
                yield key, value


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    """Return a group without its parameters."""
    return {key: value for key, value in group.items() if key != PARAMETERS}
