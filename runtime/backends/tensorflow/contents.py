"""Contents: what training changes in an executed module, and how each item is read and written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, final, runtime_checkable

import numpy as np
import tensorflow as tf

from runtime.backends.tensorflow.slots import slot_tensors
from runtime.backends.tensorflow.tensors import decode, describe_array, encode, from_array, to_array
from runtime.engine.contents import (
    MOMENTUM,
    MOST_STEPS,
    STEP,
    Fault,
    Item,
    Stored,
    groups_item,
    name_slots,
    window_item,
)
from runtime.engine.restore import compare
from runtime.state import Array, Plain, find_arrays, unflatten

FEW_GROUPS: Mapping[str, Any] = {"groups": [{}], "loose": {}, "more": {}, "host": None}
"""The part of an optimizer's state under PyTorch other than slots, unchanged: the only value here."""
FIRST: Mapping[str, float] = {"mu_product": 1.0}
"""The values of slots before the first update, where these are not 0."""


@final
@dataclass(frozen=True, slots=True)
class StoredVariable(Stored):
    """A variable as an item of state."""

    variable: Any

    def describe(self) -> tuple[tuple[int, ...], str]:
        """Return shape and type of the array that it becomes."""
        return describe_array(self.variable)

    def read(self) -> Array:
        """Return a copy on the host."""
        return to_array(self.variable)

    def write(self, array: Array) -> None:
        """Copy an array into it."""
        self.variable.assign(from_array(array, self.variable.dtype))


@runtime_checkable
class Momentous(Protocol):
    """The interface of SGD (emitted modules have classes of their own)."""

    inside: bool
    """The learning rate is inside the momentum, which is 0 before the first update."""


def kept_slots(cell: str, optimizer: Any, names: Mapping[int, str], applied: int) -> Iterator[tuple[str, tf.Variable]]:
    """Yield the slots of an optimizer; the momenta of SGD begin with the first update."""
    begins = not applied and isinstance(optimizer, Momentous) and not optimizer.inside
    for name, variable in slot_tensors(cell, optimizer, names):
        if not (begins and name.startswith(f"optimizers.{cell}.{MOMENTUM}.")):
            yield name, variable


def set_applied(optimizer: Any, applied: int) -> None:
    """Set how often an optimizer was applied; before the first update its slots have their initial values."""
    optimizer.applied.assign(applied)
    for variable in optimizer.slots.get(MOMENTUM, ()) if not applied else ():
        variable.assign(tf.zeros_like(variable))


def window_items(
    windows: Mapping[str, Any], names: Mapping[int, str], strategy: Any = None, local: Collection[str] = ()
) -> Iterator[Item]:
    """Yield the gradients that updates have accumulated.

    Of ``local`` windows each replica has the gradients of its own rows. What is read is their sum, and what is written
    goes to the first: sums are linear, so that an update takes the same.
    """
    for window, held in windows.items():
        replicas = strategy if window in local else None
        named = name_slots(held.parameters, names)
        shapes = {name: tuple(each.shape) for name, each in zip(named, held.parameters, strict=True)}
        tables = frozenset(named[at] for at in getattr(held, "ids", ()))
        read, write = partial(_read_window, held, named, replicas), partial(_write_window, held, named, replicas)
        yield window_item(window, read, write, shapes, is_open=held.may_miss, tables=tables)


def _read_window(window: Any, names: Sequence[str], replicas: Any) -> Any:
    """Return the gradients of a window, of all replicas; None where it is empty."""
    rows = int(window.rows.numpy())
    counted = {} if window.count is None else {"count": float(window.count.numpy())}
    counted |= {} if window.absent_rows is None else {"rested": int(window.absent_rows.numpy())}
    spoiled = {} if window.spoiled is None else {"spoiled": bool(window.spoiled.numpy())}
    seen = [bool(each.numpy()) for each in window.seen] if window.may_miss else [True] * len(names)
    sums = window.totals if replicas is None else replicas.read_sums(window.totals)
    named = zip(names, sums, seen, strict=True)
    totals = {name: to_array(total) for name, total, is_there in named if is_there}
    ids = {names[at]: to_array(each) for at, each in getattr(window, "ids", {}).items()}
    more = {"ids": ids} if ids else {}
    return {"rows": rows, **counted, **spoiled, **more, "totals": totals} if rows or any(spoiled.values()) else None


def _write_window(window: Any, names: Sequence[str], replicas: Any, tree: Any) -> None:
    """Fill a window again, or begin it anew, as where its saved gradients were counted differently."""
    window.drop()
    tree = tree if tree is not None and ("count" in tree) == (window.count is not None) else None
    if window.count is not None:
        window.count.assign(0.0 if tree is None else tree["count"])
    if window.absent_rows is not None:
        window.absent_rows.assign(0 if tree is None else tree.get("rested", 0))
    window.rows.assign(0 if tree is None else tree["rows"])
    if window.spoiled is not None:
        window.spoiled.assign(tree is not None and tree.get("spoiled", False))
    held: Mapping[str, Any] = {} if tree is None else tree["totals"]
    held_ids: Any = {} if tree is None else tree.get("ids", {})
    for at, ids in getattr(window, "ids", {}).items() if held_ids else ():
        ids.assign(from_array(held_ids[names[at]], tf.int64))
    for name, total in zip(names, window.totals, strict=True):
        value = from_array(held[name], total.dtype) if name in held else tf.zeros_like(total)
        total.assign(value) if replicas is None else replicas.write_sum(total, value)
    for name, seen in zip(names, window.seen, strict=True) if window.may_miss else ():
        seen.assign(name in held)


def read_scale(scale: Any) -> Any:
    """Return a loss scale, and how many steps in a row were finite, or not."""
    return {"scale": float(scale.scale.numpy()), "good": int(scale.good.numpy()), "skips": int(scale.skips.numpy())}


def write_scale(scale: Any, found: float, good: int, skips: int) -> None:
    """Set a loss scale."""
    scale.scale.assign(found)
    scale.before.assign(found)
    scale.good.assign(good)
    scale.skips.assign(skips)


def read_metric(metric: Any) -> Any:
    """Return the state of a running metric."""
    state = dict(metric.state())
    if "total" in state:  # for a mean over batches: an array, even of one number
        total = state.pop("total")
        return {"total": None if total is None else np.array(total), **encode(state)}
    return encode(state)


def write_metric(metric: Any, tree: Any) -> None:
    """Set the state of a running metric; without one it starts anew."""
    metric.reset() if tree is None else metric.load(decode(tree))


def tree_items(cell: str, optimizer: Any, names: Mapping[int, str]) -> Iterator[Item]:
    """Yield the slots of an optimizer in the form of PyTorch's class: a tree, from the first update on."""
    named = name_slots(optimizer.parameters, names)
    slots = TreeSlots(cell=cell, optimizer=optimizer, named=tuple(named))
    yield groups_item(cell, partial(dict, FEW_GROUPS), _put_groups)
    yield Item(
        path=("optimizers", cell),
        kind="slots",
        read=slots.read,
        write=slots.write,
        known=frozenset(named),
        check=slots.check,
    )


def _put_groups(tree: Any) -> None:
    """Take the part of PyTorch's state other than slots; raise ValueError where built-in rules do not have it."""
    for key in ("loose", "more"):
        if tree[key]:
            raise ValueError(f"{key}: {', '.join(tree[key])} is kept by a class of PyTorch alone")
    changed = sorted({option for group in tree["groups"] for option in group})
    if changed:
        raise ValueError(f"groups: {', '.join(changed)} was changed by a class of PyTorch")


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeSlots:
    """The slots of an optimizer by slot, then by parameter, with the updates of each parameter among them."""

    cell: str
    optimizer: Any
    named: tuple[str, ...]

    def read(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the slots; none before the first update."""
        applied = int(self.optimizer.applied.numpy())
        if not applied:
            return {}
        steps = {name: np.array(min(applied, MOST_STEPS), np.float32) for name in self.named}
        found: dict[str, dict[str, Any]] = {
            slot: {name: to_array(each) for name, each in zip(self.named, variables, strict=True)}
            for slot, variables in self.optimizer.slots.items()
        }
        return {STEP: steps, **found}

    def write(self, tree: Any) -> None:
        """Restore slots; missing ones get their initial values."""
        for slot, variables in self.optimizer.slots.items():
            for name, variable in zip(self.named, variables, strict=True):
                array = tree.get(slot, {}).get(name)
                first = tf.fill(variable.shape, tf.cast(FIRST.get(slot, 0.0), variable.dtype))
                variable.assign(first if array is None else from_array(array, variable.dtype))

    def check(self, found: Plain, arrays: Mapping[str, Array]) -> Iterable[Fault]:
        """Yield the slots that are missing, not known, or of another shape or type."""
        if not isinstance(found, dict) or not found:
            return
        slots = self.optimizer.slots.items()
        known = {
            f"{slot}.{name}": each
            for slot, variables in slots
            for name, each in zip(self.named, variables, strict=True)
        }
        given: dict[str, Array | None] = {}
        for slot, values in found.items():
            for name, value in values.items() if isinstance(values, dict) else ():
                missing = [each for each in find_arrays(value) if each not in arrays]  # reported already
                given[f"{slot}.{name}"] = None if missing else np.asarray(unflatten(value, arrays))
        for name, array in given.items():
            if name in known and array is not None:
                yield from compare(f"optimizers.{self.cell}.{name}", array, *describe_array(known[name]))
            elif name not in known and not name.startswith(f"{STEP}."):
                yield Fault(kind="unexpected", name=f"optimizers.{self.cell}.{name}")
        for name in (each for each in known if each not in given):
            yield Fault(kind="missing", name=f"optimizers.{self.cell}.{name}")
