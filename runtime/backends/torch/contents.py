"""Contents: what training changes in an executed module, and how each item is read and written."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import torch
import torch.distributed as dist
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
    name_slots,
    rest_item,
    window_item,
)
from runtime.state import Array, Part


@final
@dataclass(frozen=True, slots=True)
class StoredTensor(Stored):
    """A tensor as an item of state."""

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
class StoredShard(Stored):
    """This process's rows of a parameter, or of a slot of it, as an item of state: the array has those of all."""

    own: torch.Tensor
    parameter: torch.Tensor
    shards: Any

    def describe(self) -> tuple[tuple[int, ...], str]:
        """Return shape and type of the array that it becomes."""
        (whole,) = self.shards.whole([self.parameter])
        return describe_array(torch.empty_like(whole, dtype=self.own.dtype, device="meta"))

    def read(self) -> Array:
        """Return a copy on the host, which all processes make together."""
        return to_array(self.shards.gather(self.own, self.parameter))

    def read_own(self) -> tuple[Array, Part | None]:
        """Return a copy of this process's rows, and which these are; None where every process has all."""
        begin = self.shards.begin(self.parameter)
        return to_array(self.own), None if begin is None else Part(begin=begin, shape=self.describe()[0])

    def write(self, array: Array) -> None:
        """Copy the rows of this process out of an array."""
        (whole,) = self.shards.whole([self.parameter])
        taken = torch.empty_like(whole, dtype=self.own.dtype, device="cpu")
        copy_array(taken, array)
        self.own.detach().copy_(self.shards.take(taken, self.parameter))


@final
@dataclass(frozen=True, slots=True)
class StoredState(Stored):
    """A declared state as an item of state; it is replaced, because its readers may hold the tensor."""

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


def slot_tensors(
    cell: str, optimizer: Any, names: Mapping[int, str], applied: int
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Yield the slots of an optimizer of the library that are not derived from how often it was applied.

    Each comes with its parameter, after its name.
    """
    named = name_slots(optimizer.parameters, names)
    for slot, values in optimizer.slots.items():
        if slot == STEP or (slot == MOMENTUM and not optimizer.inside and not applied):
            continue
        for name, parameter, value in zip(named, optimizer.parameters, values, strict=True):
            like = torch.empty_like(parameter, device="meta") if value is None else value
            yield f"optimizers.{cell}.{slot}.{name}", parameter, like


def window_items(
    windows: Mapping[str, Any], names: Mapping[int, str], processes: Any = None, local: Collection[str] = ()
) -> Iterator[Item]:
    """Yield the gradients that updates have accumulated.

    Of ``local`` windows each process has the gradients of its own rows. What is read is their sum, and what each has.
    As many processes take back what they had: they add up in the same order, and compress the same. Of others the first
    takes the sum.
    """
    for window, held in windows.items():
        replicas = processes if window in local else None
        named = dict(zip(name_slots(held.parameters, names), held.parameters, strict=True))
        shapes = {name: tuple(parameter.shape) for name, parameter in named.items()}
        write = partial(_write_window, held, named, replicas)
        tables = frozenset(name for at, name in enumerate(named) if at in getattr(held, "ids", ()))
        read = partial(_read_window, held, tuple(named), replicas)
        yield window_item(window, read, write, shapes, is_open=held.may_miss, tables=tables)


def rest_items(compressors: Mapping[str, Any], names: Mapping[int, str]) -> Iterator[Item]:
    """Yield what the processes have not sent yet of gradient sets that are compressed."""
    for name, held in compressors.items():
        named = name_slots(held.parameters, names)
        read, write = partial(_read_rests, held, named), partial(_write_rests, held, named)
        shapes = {each: tuple(parameter.shape) for each, parameter in zip(named, held.parameters, strict=True)}
        yield rest_item(name, read, write, shapes)


def set_applied(optimizer: Any, applied: int) -> None:
    """Set how often an optimizer was applied, and the slots that are derived from it."""
    optimizer.applied = applied
    for part in getattr(optimizer, "parts", ()):  # of one in groups
        set_applied(part, applied)
    for steps in optimizer.held.get(STEP, ()):
        steps.fill_(min(applied, MOST_STEPS))
    momenta = optimizer.held.get(MOMENTUM, [])
    for index, parameter in enumerate(optimizer.parameters if momenta else ()):
        if momenta[index] is None and applied:
            momenta[index] = make_slot(parameter, 0.0)
        elif not (applied or optimizer.inside or optimizer.fused):
            momenta[index] = None  # the first update creates it
        elif not (applied or optimizer.inside):
            momenta[index].zero_()  # a slot that the first update does not change starts with it


def wrapped_items(cell: str, state: WrappedState) -> Iterator[Item]:
    """Yield the items of an optimizer with torch.optim's interface."""
    yield groups_item(cell, state.habits, state.put_habits)
    known = frozenset(state.names.values())
    yield Item(path=("optimizers", cell), kind="slots", read=state.slots, write=state.put_slots, known=known)


def extra_items(models: Mapping[str, nn.Module]) -> Iterator[Item]:
    """Yield the state of modules other than tensors, where they define ``get_extra_state``."""
    seen: set[int] = set()
    for model, module in models.items():
        for path, part in module.named_modules():
            if id(part) not in seen and type(part).get_extra_state is not nn.Module.get_extra_state:
                key = f"{model}.{path}" if path else model
                yield Item(
                    path=("extra", key),
                    read=lambda part=part: encode(part.get_extra_state()),
                    write=lambda tree, part=part: part.set_extra_state(decode(tree)),
                    foreign=True,
                )
            seen.add(id(part))


def _read_window(window: Any, names: Sequence[str], replicas: Any) -> Any:
    """Return the gradients of a window, of all replicas; None where it is empty."""
    if not (window.rows or window.spoiled):
        return None
    window.multiply()
    counted = {"count": float(window.count)} if window.is_counted else {}
    counted |= {"rested": int(window.absent_rows)} if window.is_counted and window.may_miss else {}
    guarded = {"spoiled": bool(window.spoiled)} if window.guard != "none" else {}
    there = window.seen if window.may_miss else [True] * len(names)
    found = {name: total for name, total, is_there in zip(names, window.totals, there, strict=True) if is_there}
    parts = {} if replicas is None or replicas.count == 1 else {name: _stack(each) for name, each in found.items()}
    found |= {name: each.sum(0) for name, each in parts.items()}
    divided = {"parts": encode(parts)} if parts else {}
    ids = {names[at]: each for at, each in getattr(window, "ids", {}).items()}
    rows = {"ids": encode(ids)} if ids else {}
    return {"rows": int(window.rows), **counted, **guarded, **rows, "totals": encode(found), **divided}


@torch.no_grad()
def _stack(own: torch.Tensor) -> torch.Tensor:
    """Return on the host what each process has in place of a tensor, by rank, along a new first axis."""
    theirs = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(theirs, own.contiguous())
    return torch.stack([each.cpu() for each in theirs])


def _write_window(window: Any, named: Mapping[str, torch.Tensor], replicas: Any, tree: Any) -> None:
    """Fill a window again, or begin it anew, as where its saved gradients were counted differently."""
    is_other = tree is None or ("count" in tree) != window.is_counted
    held: Mapping[str, Any] = {"rows": 0, "totals": {}} if tree is None or is_other else tree
    found = {name: decode(total, named[name].device) for name, total in held["totals"].items()}
    parts = {name: decode(each, "cpu") for name, each in held.get("parts", {}).items()}
    if replicas is not None and parts and all(len(each) == replicas.count for each in parts.values()):
        found = {name: each[replicas.rank].to(named[name].device) for name, each in parts.items()}
    elif replicas is not None and replicas.rank:
        found = {name: torch.zeros_like(total) for name, total in found.items()}
    window.drop()
    if found or window.may_miss:
        window.totals = [found.get(name) for name in named]
    window.seen = [name in found for name in named]
    ids: Mapping[str, Any] = held.get("ids") or {}
    for at, name in enumerate(named):
        if name in ids:
            window.ids[at], order = decode(ids[name], named[name].device).sort()
            window.totals[at] = found[name][order]
    window.rows, window.count, window.absent_rows = held["rows"], held.get("count", 0), held.get("rested", 0)
    if window.guard != "none":  # the device decides whether the window is full, perhaps only in the next step
        device = next(iter(named.values())).device
        window.rows = torch.tensor(held["rows"], device=device)
        window.spoiled = torch.tensor(held.get("spoiled", False), device=device)


def _read_rests(compressor: Any, names: Sequence[str]) -> Any:
    """Return what all processes have left out of a set, by parameter, with what all have in common."""
    rests = dict(zip(names, compressor.state(), strict=True))
    factors = {names[place]: each for place, each in getattr(compressor, "factors", {}).items()}
    return {"rests": encode(rests), **({"factors": encode(factors)} if factors else {})}


def _write_rests(compressor: Any, names: Sequence[str], tree: Any) -> None:
    """Set what this process has left out of a set; without a word nothing is."""
    if tree is None:
        compressor.load(None)
        return
    held = {name: decode(each) for name, each in tree["rests"].items()}
    compressor.load([held[name] for name in names])
    for name, each in tree.get("factors", {}).items():
        place = names.index(name)
        compressor.factors[place] = decode(each).to(compressor.factors[place])


def read_scale(scale: Any) -> Any:
    """Return a loss scale, and how many steps in a row were finite, or not."""
    return {"scale": scale.scale, "good": scale.good, "skips": scale.skips}


def write_scale(scale: Any, found: float, good: int, skips: int) -> None:
    """Set a loss scale."""
    scale.scale = scale.before = found
    scale.good, scale.skips = good, skips


def read_metric(metric: Any) -> Any:
    """Return the state of a running metric."""
    return encode(metric.state())


def write_metric(metric: Any, tree: Any) -> None:
    """Set the state of a running metric; without one it starts anew."""
    metric.reset() if tree is None else metric.load(decode(tree, metric.device))
