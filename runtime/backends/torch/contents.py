"""Contents: what of an executed module is changed by training, and how each of it is read and written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, final, runtime_checkable

import torch
from torch import nn

from runtime.backends.torch.library.optimizers import make_slot
from runtime.backends.torch.tensors import copy_array, decode, describe_array, encode, to_array
from runtime.backends.torch.wrapped import WrappedState
from runtime.engine.contents import (
    MOMENTUM,
    MOST_STEPS,
    STEP,
    Item,
    Stored,
    groups_item,
    metric_item,
    name_slots,
    scale_item,
    window_item,
)
from runtime.state import Array


@final
@dataclass(frozen=True, slots=True)
class StoredTensor(Stored):
    """A tensor as state sees it."""

    tensor: torch.Tensor

    def describe(self) -> tuple[tuple[int, ...], str]:
        """Return shape and type of the array that it becomes."""
        return describe_array(self.tensor)

    def read(self) -> Array:
        """Return a copy on the host."""
        return to_array(self.tensor)

    def write(self, array: Array) -> None:
        """Copy an array into it."""
        copy_array(self.tensor, array)


@final
@dataclass(frozen=True, slots=True)
class StoredState(Stored):
    """A declared state as state sees it; it is replaced, since whoever read it may hold the tensor."""

    states: dict[str, torch.Tensor]
    name: str

    def describe(self) -> tuple[tuple[int, ...], str]:
        """Return shape and type of the array that it becomes."""
        return describe_array(self.states[self.name])

    def read(self) -> Array:
        """Return a copy on the host."""
        return to_array(self.states[self.name])

    def write(self, array: Array) -> None:
        """Put another tensor in its place."""
        taken = torch.empty_like(self.states[self.name])
        copy_array(taken, array)
        self.states[self.name] = taken


@runtime_checkable
class Parted(Protocol):
    """What an optimizer in groups has (emitted modules have classes of their own)."""

    parts: Sequence[Any]


@runtime_checkable
class Guarded(Protocol):
    """What a window has that takes no gradients in without a verdict (emitted modules have classes of their own)."""

    rows: Any
    spoiled: Any
    totals: Any


@runtime_checkable
class Open(Protocol):
    """What a window has to which some gradients may be absent."""

    is_open: bool
    rows: Any
    rested: Any
    totals: Any


@runtime_checkable
class Seeing(Protocol):
    """What a window has that keeps account of which gradients steps had that were taken in."""

    seen: Sequence[bool]
    is_begun: bool
    undecided: torch.Tensor | None

    def decide(self) -> None:
        """Find out whether the last step was taken in."""
        ...


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


def metric_items(mode: str, metrics: Mapping[str, Any]) -> Iterator[Item]:
    """Yield the running metrics of a mode that tell their state."""
    for op, metric in metrics.items():
        if metric.state() is not None:
            yield metric_item(mode, op, partial(_read_metric, metric), partial(_write_metric, metric))


def window_items(windows: Mapping[str, Any], names: Mapping[int, str]) -> Iterator[Item]:
    """Yield the gradients that updates have gathered."""
    for window, held in windows.items():
        named = dict(zip(name_slots(held.parameters, names), held.parameters, strict=True))
        shapes = {name: tuple(parameter.shape) for name, parameter in named.items()}
        write = partial(_write_window, held, named)
        read, is_open = partial(_read_window, held, tuple(named)), isinstance(held, Open)
        yield window_item(window, read, write, shapes, is_open=is_open)


def set_applied(optimizer: Any, applied: int) -> None:
    """Set how often an optimizer was applied, and the slots that follow from it."""
    optimizer.applied = applied
    for part in _find_parts(optimizer):
        set_applied(part, applied)
    for steps in optimizer.held.get(STEP, ()):
        steps.fill_(min(applied, MOST_STEPS))
    momenta = optimizer.held.get(MOMENTUM, [])
    for index, parameter in enumerate(optimizer.parameters if momenta else ()):
        if momenta[index] is None and applied:
            momenta[index] = make_slot(parameter, 0.0)
        elif not (applied or optimizer.inside or optimizer.fused):
            momenta[index] = None  # the first update makes it
        elif not (applied or optimizer.inside):
            momenta[index].zero_()  # one that the first update leaves alone begins with it


def _find_parts(optimizer: object) -> Iterator[Any]:
    """Yield the optimizers of which one is made."""
    yield from optimizer.parts if isinstance(optimizer, Parted) else ()


def wrapped_items(cell: str, state: WrappedState) -> Iterator[Item]:
    """Yield what an optimizer with torch.optim's interface holds."""
    yield groups_item(cell, state.habits, state.put_habits)
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


def _read_window(window: Any, names: Sequence[str]) -> Any:
    """Return what a window holds; None where it is empty."""
    if not window.totals:
        return None
    counted = {"count": float(window.count)} if window.is_counted else {}
    counted |= {"rested": int(window.rested)} if window.is_counted and isinstance(window, Open) else {}
    guarded = {"spoiled": bool(window.spoiled)} if isinstance(window, Guarded) else {}
    seen = _find_seen(window) or [True] * len(names)
    named = zip(names, window.totals, seen, strict=True)
    found = {name: total for name, total, is_there in named if total is not None and is_there}
    return {"rows": int(window.rows), **counted, **guarded, "totals": encode(found)}


def _find_seen(window: Any) -> list[bool]:
    """Return by parameter whether a window took a gradient in, where it keeps account of that."""
    if not isinstance(window, Seeing):
        return []
    window.decide()
    return [*window.seen]


def _write_window(window: Any, named: Mapping[str, torch.Tensor], tree: Any) -> None:
    """Fill a window again, or begin it anew: so does one that held gradients of what counts differently."""
    is_other = tree is None or ("count" in tree) != window.is_counted
    held: Mapping[str, Any] = {"rows": 0, "totals": {}} if tree is None or is_other else tree
    found = {name: decode(total, named[name].device) for name, total in held["totals"].items()}
    window.totals, window.rows = [found.get(name) for name in named] if found else [], held["rows"]
    window.count = held.get("count", 0)
    if isinstance(window, Open):
        window.rested = held.get("rested", 0)
    if isinstance(window, Guarded):  # the device decides whether there is something to take, in the next step perhaps
        device = next(iter(named.values())).device
        window.rows = torch.tensor(held["rows"], device=device)
        window.spoiled = torch.tensor(held.get("spoiled", False), device=device)
    if isinstance(window, Seeing):
        window.seen, window.is_begun, window.undecided = [name in found for name in named], bool(held["rows"]), None


def scale_items(scale: Any) -> Iterator[Item]:
    """Yield the loss scale of a step, where there is one."""
    if scale is not None:
        yield scale_item(partial(_read_scale, scale), partial(_write_scale, scale), scale.initial)


def _read_scale(scale: Any) -> Any:
    """Return a loss scale, and how many steps in a row were finite, or not."""
    return {"scale": scale.scale, "good": scale.good, "skips": scale.skips}


def _write_scale(scale: Any, tree: Any) -> None:
    """Set a loss scale; a fixed one is what the spec says."""
    scale.scale = scale.initial if scale.is_fixed else tree["scale"]
    scale.before, scale.good, scale.skips = scale.scale, tree["good"], tree["skips"]


def _read_metric(metric: Any) -> Any:
    """Return the state of a running metric."""
    return encode(metric.state())


def _write_metric(metric: Any, tree: Any) -> None:
    """Give a running metric its state; without one it starts anew."""
    metric.reset() if tree is None else metric.load(decode(tree, metric.device))
