"""State of an executed module: read as arrays and counts, and restored whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import Enum
from typing import Final, Literal, TypeAlias, cast

from compiler.ir.program import Program
from compiler.timing.bounds import Bounds
from compiler.timing.firing_sets import find_counts, lacks_functions
from compiler.timing.gates import find_ungated
from graphspec.diagnostics import SpecError
from runtime.engine.contents import Contents, Fault, Holder, Item, report_faults
from runtime.problems import problem
from runtime.state import Array, Part, Plain, State, Tree, find_arrays, flatten, unflatten
from runtime.support.clocks import Gates

OPTIONAL = frozenset({"steps", "gates", "averaged", "metrics", "windows", "scaling", "rests"})
"""Sections with entries that another clock, mode, metric or window adds or takes away: the rest still fits."""


class Absent(Enum):
    """The value where a state has nothing."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
Found: TypeAlias = Plain | Literal[Absent.ABSENT]
Skeleton: TypeAlias = "dict[str, Item | Skeleton]"
"""Items under the keys of their paths."""


def find_faults(contents: Contents, state: State) -> Iterator[Fault]:
    """Yield every difference between a state and the contents of its module."""
    skeleton: Skeleton = {}
    for item in contents.items:
        *sections, key = item.path
        place = skeleton
        for section in sections:
            place = cast("Skeleton", place.setdefault(section, {}))
        place[key] = item
    yield from _match(skeleton, state.counters, "")
    known = {name: stored.describe() for name, stored in contents.tensors.items()}
    trees = (find_value(state.counters, item.path) for item in contents.items)
    others = [name for section in ("metrics", "windows", "rests") for name in find_arrays(state.counters.get(section))]
    named = {*others, *(name for tree in trees if tree is not ABSENT for name in find_arrays(tree))}
    for name in (*known, *sorted(named - known.keys())):
        if name not in state.arrays:
            yield Fault(kind="missing", name=name)
    for name, array in state.arrays.items():
        if name in known:
            yield from compare(name, array, *known[name])
        elif name not in named:
            yield Fault(kind="unexpected", name=name)
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


def compare(name: str, array: Array, shape: tuple[int, ...], dtype: str) -> Iterator[Fault]:
    """Yield every difference between an array and its tensor."""
    if array.shape != shape:
        yield Fault(kind="shape", name=name, found=str(list(array.shape)), expected=str(list(shape)))
    elif array.dtype.name != dtype:
        yield Fault(kind="type", name=name, found=array.dtype.name, expected=dtype)


def _match(skeleton: Skeleton, counters: Mapping[str, Plain], prefix: str) -> Iterator[Fault]:
    """Yield every difference between counters and the items, section by section."""
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
            if isinstance(found, dict):
                names = {name for slot in found.values() if isinstance(slot, dict) for name in slot}
                others = sorted(names - item.known)  # parameters that the optimizer does not have
                yield from (Fault(kind="unexpected", name=f"{item.name}.{name}") for name in others)
            else:
                yield Fault(kind="value", name=item.name, found=repr(found), expected="a mapping of slots")
        case "tree":
            return


def read_state(holder: Holder, *, whole: bool = True) -> State:
    """Return everything that training changes, copied to the host; not ``whole``: what this process has of it.

    Raises SpecError: GS267 where a user's module, metric or optimizer keeps what a checkpoint cannot.
    """
    contents = holder.contents(holder.applied())
    arrays: dict[str, Array] = {}
    parts: dict[str, Part] = {}
    for name, stored in contents.tensors.items():
        arrays[name], part = (stored.read(), None) if whole else stored.read_own()
        parts |= {} if part is None else {name: part}
    counters: dict[str, Plain] = {}
    for item in contents.items:
        plain, found = flatten(item.read(), item.name)
        arrays.update(found)
        *sections, key = item.path
        place = counters
        for section in sections:
            place = cast("dict[str, Plain]", place.setdefault(section, {}))
        place[key] = plain
    return State(arrays=arrays, counters=counters, backend=holder.backend, parts=parts)


def restore_state(holder: Holder, state: State) -> None:
    """Restore a state into a module: in place, and nothing at all where something does not fit.

    The state may be that of another backend. Raises SpecError: GS264 for every name that is missing, not expected, or
    of another shape or type.
    """
    section = state.counters.get("applied")
    counts = section.items() if isinstance(section, dict) else ()
    applied = {cell: count for cell, count in counts if isinstance(count, int)}
    contents = holder.contents(applied)
    faults = tuple(find_faults(contents, state))
    if faults:
        # Names are at fault where frameworks differ: their own classes choose them.
        is_named = any(each.kind in ("missing", "unexpected") for each in faults)
        raise SpecError(report_faults(faults, _cross(state, holder) if is_named else ()), {})
    # Everything but tensors, the user's code first; where it refuses something, its writes are undone.
    done: list[tuple[Item, Tree]] = []
    values: dict[tuple[str, ...], Tree] = {}
    for item in contents.items:
        found = find_value(state.counters, item.path)
        values[item.path] = item.fresh if found is ABSENT else unflatten(found, state.arrays)
    for item in (each for each in contents.items if each.foreign):
        done.append((item, item.read()))
        try:
            item.write(values[item.path])
        except Exception as error:
            for refused, before in reversed(done):
                with suppress(Exception):  # where the user's code refuses these too, nothing can be done
                    refused.write(before)
            message = f"the state of {item.name} was refused: {type(error).__name__}: {error}"
            help = "the code that takes it has changed since it was saved, or does not fit it"
            raise problem("GS264", message, notes=_cross(state, holder), help=help) from error
    for item in (each for each in contents.items if not each.foreign):
        item.write(values[item.path])
    for name, stored in holder.contents(applied).tensors.items():  # setting the counts has created the slots
        stored.write(state.arrays[name])


def _cross(state: State, holder: Holder) -> tuple[str, ...]:
    """Return a note where a state comes from another backend; none where it is the same."""
    if state.backend in ("", holder.backend):
        return ()
    crosses = "built-in models, optimizers and metrics fit both; what a framework's or user's class keeps does not"
    return (f"the state was saved under {state.backend}, the step runs under {holder.backend}: {crosses}",)


def align_counts(program: Program, steps: Mapping[str, int], gates: Gates) -> None:
    """Change the counts of gates where ops would fire together that have no function.

    A state may be of a run whose clocks were others: another `every`, `start`, window or length of an epoch. Counts
    that these clocks never reach are replaced by the nearest ones that are possible after the finished steps. Gates
    that count writes which may be skipped keep theirs, up to what they can have counted if none was.
    """
    for mode in program.modes:
        clocks = tuple(gate for gate in mode.gates if gate.clock != "averaged")
        counts, made, bounds = gates.counts.get(mode.mode, {}), steps.get(mode.mode, 0), Bounds.of(clocks)
        applied = gates.applied.get(mode.mode, {})
        for gate in (gate for gate in clocks if gate.op in mode.undecided):
            counts[gate.op] = min(counts[gate.op], bounds.count(gate, made))
            if gate.counted:
                applied[gate.op] = min(applied[gate.op], bounds.fire_any(gate.counted, made))
        counting = (gate for gate in clocks if gate.clock == "writes" and not gate.counts_with)
        every = {gate.op: gate.every for gate in counting if gate.op not in mode.undecided}
        if not every:
            continue
        now = {op: counts[op] % interval for op, interval in every.items()}
        free = find_ungated(clocks)
        datasets = program.datasets
        always = dict.fromkeys(datasets if mode.mode == "train" and datasets else ("", *datasets), free)
        if lacks_functions(clocks, always, mode.undecided, made, now):
            possible = find_counts(clocks, always, mode.undecided, made)
            nearest = min(possible, key=lambda each: sum(each[op] != now[op] for op in now))
            counts.update({op: count for op, count in nearest.items() if count != now[op]})
