"""Matching a state with the contents of a module: every fault, found before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final, Literal, TypeAlias, cast

from runtime.holding.contents import Contents, Item
from runtime.holding.faults import Fault
from runtime.state import Array, Plain, State, find_arrays

OPTIONAL = frozenset({"steps", "gates", "averaged", "metrics", "windows", "scaling"})
"""Sections with entries that another clock, mode, metric or window adds or takes away: the rest still fits."""


class Absent(Enum):
    """What stands where a state says nothing."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
Found: TypeAlias = Plain | Literal[Absent.ABSENT]
Skeleton: TypeAlias = "dict[str, Item | Skeleton]"
"""Items under the keys of their paths."""


def find_faults(contents: Contents, state: State) -> Iterator[Fault]:
    """Yield in what a state differs from the contents of the module that it is for."""
    yield from _match(_build(contents), state.counters, "")
    yield from _find_array_faults(contents, state)
    for item in contents.items:
        found = find_value(state.counters, item.path)
        if item.check is not None and found is not ABSENT:
            yield from item.check(found, state.arrays)


def find_value(counters: Mapping[str, Plain], path: tuple[str, ...]) -> Found:
    """Return what is at a path of nested counters; ABSENT where there is nothing."""
    found: Found = dict(counters)
    for key in path:
        found = found.get(key, ABSENT) if isinstance(found, dict) else ABSENT
    return found


def _find_array_faults(contents: Contents, state: State) -> Iterator[Fault]:
    """Yield what is wrong with the arrays."""
    known = {name: stored.describe() for name, stored in contents.tensors.items()}
    trees = (find_value(state.counters, item.path) for item in contents.items)
    others = [name for section in ("metrics", "windows") for name in find_arrays(state.counters.get(section))]
    named = {*others, *(name for tree in trees if tree is not ABSENT for name in find_arrays(tree))}
    for name in (*known, *sorted(named - known.keys())):
        if name not in state.arrays:
            yield Fault(kind="missing", name=name)
    for name, array in state.arrays.items():
        if name in known:
            yield from compare(name, array, *known[name])
        elif name not in named:
            yield Fault(kind="unexpected", name=name)


def compare(name: str, array: Array, shape: tuple[int, ...], dtype: str) -> Iterator[Fault]:
    """Yield in what an array differs from the tensor it is for."""
    if array.shape != shape:
        yield Fault(kind="shape", name=name, found=str(list(array.shape)), expected=str(list(shape)))
    elif array.dtype.name != dtype:
        yield Fault(kind="type", name=name, found=array.dtype.name, expected=dtype)


def _build(contents: Contents) -> Skeleton:
    """Return the items by the keys of their paths."""
    skeleton: Skeleton = {}
    for item in contents.items:
        *sections, key = item.path
        place = skeleton
        for section in sections:
            place = cast("Skeleton", place.setdefault(section, {}))
        place[key] = item
    return skeleton


def _match(skeleton: Skeleton, counters: Mapping[str, Plain], prefix: str) -> Iterator[Fault]:
    """Yield in what counters differ from the items there are, section by section."""
    for key, expected in skeleton.items():
        found = counters.get(key, ABSENT)
        match expected, found:
            case _, Absent.ABSENT:
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


def _leaves(expected: Item | Skeleton) -> Iterator[Item]:
    """Yield all items of a section."""
    if isinstance(expected, Item):
        yield expected
    else:
        for each in expected.values():
            yield from _leaves(each)


def _check(item: Item, found: Found) -> Iterator[Fault]:
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


def _check_slots(item: Item, found: Found) -> Iterator[Fault]:
    """Yield the parameters in slots that an optimizer does not have."""
    if not isinstance(found, dict):
        yield Fault(kind="value", name=item.name, found=repr(found), expected="a mapping of slots")
        return
    names = {name for slot in found.values() if isinstance(slot, dict) for name in slot}
    yield from (Fault(kind="unexpected", name=f"{item.name}.{name}") for name in sorted(names - item.known))
