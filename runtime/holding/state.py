"""State of an executed module: read as arrays and counts, and restored whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import cast

from graphspec.diagnostics import SpecError
from runtime.holding.contents import Holder, Item
from runtime.holding.faults import Fault, tell
from runtime.holding.matching import ABSENT, find_faults, find_value
from runtime.problems import problem
from runtime.state import Plain, State, Tree, flatten, unflatten


def read_state(holder: Holder) -> State:
    """Return everything that training changes, copied to the host.

    Raises SpecError: GS267 where a user's module, metric or optimizer keeps what a checkpoint cannot.
    """
    contents = holder.contents(holder.applied())
    arrays = {name: stored.read() for name, stored in contents.tensors.items()}
    counters: dict[str, Plain] = {}
    for item in contents.items:
        plain, found = flatten(item.read(), item.name)
        arrays.update(found)
        *sections, key = item.path
        _open(counters, sections)[key] = plain
    return State(arrays=arrays, counters=counters, backend=holder.backend)


def restore_state(holder: Holder, state: State) -> None:
    """Make a module what it was when a state was read: in place, and nothing at all where something does not fit.

    The state may be that of another backend. Raises SpecError: GS264 for every name that is missing, not expected, or
    of another shape or type.
    """
    applied = {cell: count for cell, count in _section(state.counters, "applied").items() if isinstance(count, int)}
    contents = holder.contents(applied)
    faults = tuple(find_faults(contents, state))
    if faults:
        raise SpecError(tell(faults, _explain(faults, state, holder)), {})
    _write_items(contents.items, state, holder)
    for name, stored in holder.contents(applied).tensors.items():  # the counts have made the slots there are by now
        stored.write(state.arrays[name])


def _write_items(items: tuple[Item, ...], state: State, holder: Holder) -> None:
    """Write what is no tensor; first what the user's code takes, which takes all back where it refuses something."""
    done: list[tuple[Item, Tree]] = []
    values = {item.path: _value(item, state) for item in items}
    for item in (each for each in items if each.foreign):
        done.append((item, item.read()))
        try:
            item.write(values[item.path])
        except Exception as error:
            _take_back(done)
            raise _refused(item, error, _cross(state, holder)) from error
    for item in (each for each in items if not each.foreign):
        item.write(values[item.path])


def _value(item: Item, state: State) -> Tree:
    """Return what a state has for an item."""
    found = find_value(state.counters, item.path)
    return item.fresh if found is ABSENT else unflatten(found, state.arrays)


def _take_back(done: list[tuple[Item, Tree]]) -> None:
    """Write what there was before; what is refused as well cannot be helped."""
    for item, before in reversed(done):
        with suppress(Exception):
            item.write(before)


def _refused(item: Item, error: Exception, notes: tuple[str, ...]) -> SpecError:
    """Return the error of a state that the user's code did not take."""
    message = f"the state of {item.name} was refused: {type(error).__name__}: {error}"
    help = "the code that takes it has changed since it was saved, or does not fit it"
    return problem("GS264", message, notes=notes, help=help)


def _explain(faults: Iterable[Fault], state: State, holder: Holder) -> tuple[str, ...]:
    """Return a note about frameworks where names are at fault, which their own classes choose."""
    return _cross(state, holder) if any(each.kind in ("missing", "unexpected") for each in faults) else ()


def _cross(state: State, holder: Holder) -> tuple[str, ...]:
    """Return a note where a state is that of another backend; none where it is of the same."""
    if state.backend in ("", holder.backend):
        return ()
    crosses = "built-in models, optimizers and metrics fit both; what a framework's or user's class keeps does not"
    return (f"the state was saved under {state.backend}, the step runs under {holder.backend}: {crosses}",)


def _open(counters: dict[str, Plain], sections: list[str]) -> dict[str, Plain]:
    """Return a section of nested counters, made where it is not there."""
    for section in sections:
        counters = cast("dict[str, Plain]", counters.setdefault(section, {}))
    return counters


def _section(counters: Mapping[str, Plain], name: str) -> Mapping[str, Plain]:
    """Return a section of counters; an empty one where there is none."""
    found = counters.get(name)
    return found if isinstance(found, dict) else {}
