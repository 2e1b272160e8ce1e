"""Contents: what of an executed module is changed by training, and how each of it is read and written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import nn

from compiler.program import ModeProgram
from runtime.backends.torch.library.clocks import Clock
from runtime.backends.torch.library.optimizers import make_slot
from runtime.backends.torch.trees import decode, encode
from runtime.backends.torch.wrapped import WrappedState, name_slots

STEP = "step"
"""The slot that counts updates: it follows from how often the optimizer was applied."""
MOST_STEPS = 1 << 24
"""Where the counts of that slot stay: in float32 one more makes no difference from there on."""
MOMENTUM = "momentum_buffer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Something that is no tensor of the module's own: at ``path`` of the counters, read and written as a whole.

    ``kind`` is what it is: a count, a set of names, the slots of an optimizer, or another tree that may hold tensors;
    ``foreign``: the user's code takes it and may refuse.
    """

    path: tuple[str, ...]
    read: Callable[[], Any]
    write: Callable[[Any], None]
    kind: Literal["count", "names", "slots", "tree"] = "tree"
    known: frozenset[str] = frozenset()
    """Of the slots of an optimizer: the names of its parameters."""
    foreign: bool = False
    optional: bool = False
    """A state may be without it, and have others of its section: which clocks and metrics there are may change between
    runs. It is then ``fresh``."""
    fresh: Any = None

    @property
    def name(self) -> str:
        """Return the path as one name."""
        return ".".join(self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """All that training changes, as it is now: tensors by name, which are written in place, and everything else."""

    tensors: Mapping[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    items: tuple[Item, ...] = ()


def model_tensors(models: Mapping[str, nn.Module]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield parameters and buffers, each under the first name it has."""
    seen: set[int] = set()
    for model, module in models.items():
        for name, tensor in (*module.named_parameters(), *module.named_buffers()):
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield f"models.{model}.{name}", tensor


def slot_tensors(
    cell: str, optimizer: Any, names: Mapping[int, str], applied: int
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the slots of an optimizer of the library that do not follow from how often it is applied."""
    named = name_slots(optimizer.parameters, names)
    for slot, values in optimizer.slots.items():
        if slot == STEP or (slot == MOMENTUM and not optimizer.inside and not applied):
            continue
        for name, parameter, value in zip(named, optimizer.parameters, values, strict=True):
            like = torch.empty_like(parameter, device="meta") if value is None else value
            yield f"optimizers.{cell}.{slot}.{name}", like


def clock_items(modes: Iterable[ModeProgram], clock: Clock, gates: Any) -> Iterator[Item]:
    """Yield the steps of every mode, what gates counted, and the averages that stand in for their models."""
    for mode in modes:
        yield _count_item(("steps", mode.mode), clock.steps, mode.mode)
        for gate in mode.gates:
            if gate.clock == "writes":  # the others follow from the number of the step
                yield _count_item(("gates", mode.mode, gate.op), gates.counts[mode.mode], gate.op)
    if gates is not None and gates.watched:
        read, write = partial(_read_averaged, gates), partial(_set_averaged, gates)
        yield Item(path=("averaged",), kind="names", read=read, write=write, optional=True, fresh=[])


def metric_items(mode: str, metrics: Mapping[str, Any]) -> Iterator[Item]:
    """Yield the running metrics of a mode that tell their state."""
    for op, metric in metrics.items():
        if metric.state() is not None:
            read, write = partial(_read_metric, metric), partial(_write_metric, metric)
            yield Item(path=("metrics", mode, op), read=read, write=write, foreign=True, optional=True)


def _count_item(path: tuple[str, ...], counts: dict[str, int], key: str) -> Item:
    """Return an entry of a dictionary of counts."""
    read, write = partial(counts.get, key, 0), partial(counts.__setitem__, key)
    return Item(path=path, kind="count", read=read, write=write, optional=True, fresh=0)


def _read_averaged(gates: Any) -> list[str]:
    """Return which averages stand in for their models."""
    return sorted(gates.averaged)


def _set_averaged(gates: Any, ops: list[str]) -> None:
    """Set which averages stand in for their models."""
    gates.averaged = gates.watched.intersection(ops)


def applied_item(cell: str, optimizer: Any) -> Item:
    """Return how often an optimizer was applied."""
    write = partial(_set_applied, optimizer)
    return Item(path=("applied", cell), kind="count", read=lambda: optimizer.applied, write=write)


def _set_applied(optimizer: Any, applied: int) -> None:
    """Set how often an optimizer was applied, and the slots that follow from it."""
    optimizer.applied = applied
    for steps in optimizer.held.get(STEP, ()):
        steps.fill_(min(applied, MOST_STEPS))
    momenta = optimizer.held.get(MOMENTUM, [])
    for index, parameter in enumerate(optimizer.parameters if momenta else ()):
        if momenta[index] is None and applied:
            momenta[index] = make_slot(parameter, 0.0)
        elif not (applied or optimizer.inside or optimizer.fused):
            momenta[index] = None  # the first update makes it


def wrapped_items(cell: str, state: WrappedState) -> Iterator[Item]:
    """Yield what an optimizer with torch.optim's interface holds."""
    yield Item(path=("groups", cell), read=state.habits, write=state.put_habits, foreign=True)
    known = frozenset(state.names.values())
    yield Item(path=("optimizers", cell), kind="slots", read=state.slots, write=state.put_slots, known=known)


def extra_items(models: Mapping[str, nn.Module]) -> Iterator[Item]:
    """Yield what modules keep beside tensors, where they say so with ``get_extra_state``."""
    seen: set[int] = set()
    for model, module in models.items():
        for path, part in module.named_modules():
            if id(part) not in seen and type(part).get_extra_state is not nn.Module.get_extra_state:
                read = partial(_read_extra, part)
                key = f"{model}.{path}" if path else model
                yield Item(path=("extra", key), read=read, write=partial(_write_extra, part), foreign=True)
            seen.add(id(part))


def _read_extra(module: nn.Module) -> Any:
    """Return the extra state of a module."""
    return encode(module.get_extra_state())


def _write_extra(module: nn.Module, tree: Any) -> None:
    """Give a module its extra state."""
    module.set_extra_state(decode(tree))


def _read_metric(metric: Any) -> Any:
    """Return the state of a running metric."""
    return encode(metric.state())


def _write_metric(metric: Any, tree: Any) -> None:
    """Give a running metric its state; without one it starts anew."""
    metric.reset() if tree is None else metric.load(decode(tree, metric.device))
