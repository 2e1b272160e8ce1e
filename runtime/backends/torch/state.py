"""State of an executed module: read as arrays and counts, and restored whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch

from graphspec.diagnostics import SpecError
from runtime.backends.torch.contents import Contents, Item
from runtime.backends.torch.faults import Fault, tell
from runtime.backends.torch.module import Module
from runtime.backends.torch.trees import copy_array, describe_array, to_array
from runtime.problems import problem
from runtime.state import Array, Plain, State, find_arrays, flatten, unflatten

ABSENT = object()
OPTIONAL = frozenset({"steps", "gates", "averaged", "metrics"})
"""Sections with entries that another clock, mode or metric in the spec adds or takes away: the rest still fits."""


@torch.inference_mode(False)
@torch.no_grad()
def read_state(module: Module) -> State:
    """Return everything that training changes, copied to the host.

    Raises SpecError: GS267 where a user's module, metric or optimizer keeps what a checkpoint cannot.
    """
    contents = module.contents(module.applied())
    arrays = {name: to_array(tensor) for name, tensor in contents.tensors.items()}
    counters: dict[str, Plain] = {}
    for item in contents.items:
        plain, found = flatten(item.read(), item.name)
        arrays.update(found)
        *sections, key = item.path
        _open(counters, sections)[key] = plain
    return State(arrays=arrays, counters=counters)


@torch.inference_mode(False)
@torch.no_grad()
def restore_state(module: Module, state: State) -> None:
    """Make a module what it was when a state was read: in place, and nothing at all where something does not fit.

    Raises SpecError: GS264 for every name that is missing, not expected, or of another shape or type.
    """
    applied = {cell: count for cell, count in _section(state.counters, "applied").items() if isinstance(count, int)}
    contents = module.contents(applied)
    faults = (*_find_counter_faults(contents, state), *_find_array_faults(contents, state))
    if faults:
        raise SpecError(tell(faults), {})
    _write_items(contents.items, state)
    for name, tensor in module.contents(applied).tensors.items():  # the counts have made the slots there are by now
        copy_array(tensor, state.arrays[name])


def _write_items(items: tuple[Item, ...], state: State) -> None:
    """Write what is no tensor; first what the user's code takes, which takes all back where it refuses something."""
    done: list[tuple[Item, Any]] = []
    values = {item.path: _value(item, state) for item in items}
    for item in (each for each in items if each.foreign):
        done.append((item, item.read()))
        try:
            item.write(values[item.path])
        except Exception as error:
            _take_back(done)
            raise _refused(item, error) from error
    for item in (each for each in items if not each.foreign):
        item.write(values[item.path])


def _value(item: Item, state: State) -> Any:
    """Return what a state has for an item."""
    found = _find(state.counters, item.path)
    return item.fresh if found is ABSENT else unflatten(found, state.arrays)


def _take_back(done: list[tuple[Item, Any]]) -> None:
    """Write what there was before; what is refused as well cannot be helped."""
    for item, before in reversed(done):
        with suppress(Exception):
            item.write(before)


def _refused(item: Item, error: Exception) -> SpecError:
    """Return the error of a state that the user's code did not take."""
    message = f"the state of {item.name} was refused: {type(error).__name__}: {error}"
    return problem("GS264", message, help="the code that takes it has changed since it was saved, or does not fit it")


def _find_array_faults(contents: Contents, state: State) -> Iterator[Fault]:
    """Yield what is wrong with the arrays."""
    known = {name: describe_array(tensor) for name, tensor in contents.tensors.items()}
    trees = (_find(state.counters, item.path) for item in contents.items)
    others = find_arrays(state.counters.get("metrics"))
    named = {*others, *(name for tree in trees if tree is not ABSENT for name in find_arrays(tree))}
    for name in (*known, *sorted(named - known.keys())):
        if name not in state.arrays:
            yield Fault(kind="missing", name=name)
    for name, array in state.arrays.items():
        if name in known:
            yield from _compare(name, array, *known[name])
        elif name not in named:
            yield Fault(kind="unexpected", name=name)


def _compare(name: str, array: Array, shape: tuple[int, ...], dtype: str) -> Iterator[Fault]:
    """Yield in what an array differs from the tensor it is for."""
    if array.shape != shape:
        yield Fault(kind="shape", name=name, found=str(list(array.shape)), expected=str(list(shape)))
    elif array.dtype.name != dtype:
        yield Fault(kind="type", name=name, found=array.dtype.name, expected=dtype)


def _find_counter_faults(contents: Contents, state: State) -> Iterator[Fault]:
    """Yield what is wrong with everything that is no array."""
    skeleton: dict[str, Any] = {}
    for item in contents.items:
        *sections, key = item.path
        _open(skeleton, sections)[key] = item
    yield from _match(skeleton, state.counters, "")


def _match(skeleton: Mapping[str, Any], counters: Mapping[str, Plain], prefix: str) -> Iterator[Fault]:
    """Yield in what counters differ from the items there are, section by section."""
    for key, expected in skeleton.items():
        found = counters.get(key, ABSENT)
        match expected, found:
            case _, _ if found is ABSENT:
                yield from (Fault(kind="missing", name=item.name) for item in _leaves(expected) if not item.optional)
            case Item(), _:
                yield from _check(expected, found)
            case _, dict():
                yield from _match(expected, found, f"{prefix}{key}.")
            case _:
                yield Fault(kind="value", name=f"{prefix}{key}", found=repr(found), expected="a mapping")
    for name in (f"{prefix}{key}" for key in counters if key not in skeleton):
        if name.partition(".")[0] not in OPTIONAL:
            yield Fault(kind="unexpected", name=name)


def _leaves(expected: Item | Mapping[str, Any]) -> Iterator[Item]:
    """Yield all items of a section."""
    if isinstance(expected, Item):
        yield expected
    else:
        for each in expected.values():
            yield from _leaves(each)


def _check(item: Item, found: Any) -> Iterator[Fault]:
    """Yield what is wrong with the value of an item."""
    match item.kind:
        case "count":
            if type(found) is not int or found < 0:
                yield Fault(kind="value", name=item.name, found=repr(found), expected="a count")
        case "names":
            if not isinstance(found, list):
                yield Fault(kind="value", name=item.name, found=repr(found), expected="a list of names")
        case "slots":
            yield from _check_slots(item, found)
        case "tree":
            return


def _check_slots(item: Item, found: object) -> Iterator[Fault]:
    """Yield the parameters in slots that an optimizer does not have."""
    if not isinstance(found, dict):
        yield Fault(kind="value", name=item.name, found=repr(found), expected="a mapping of slots")
        return
    names = {name for slot in found.values() if isinstance(slot, dict) for name in slot}
    yield from (Fault(kind="unexpected", name=f"{item.name}.{name}") for name in sorted(names - item.known))


def _open(counters: dict[str, Any], sections: list[str]) -> dict[str, Any]:
    """Return a section of nested counters, made where it is not there."""
    for section in sections:
        counters = counters.setdefault(section, {})
    return counters


def _find(counters: Mapping[str, Plain], path: tuple[str, ...]) -> Any:
    """Return what is at a path of nested counters; ABSENT where there is nothing."""
    found: Any = counters
    for key in path:
        found = found.get(key, ABSENT) if isinstance(found, Mapping) else ABSENT
    return found


def _section(counters: Mapping[str, Plain], name: str) -> dict[str, Plain]:
    """Return a section of counters; an empty one where there is none."""
    found = counters.get(name)
    return found if isinstance(found, dict) else {}
