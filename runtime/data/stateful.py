"""The state of a user's own source: what it keeps of the past, and how that is saved and put back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from graphspec.diagnostics import SpecError
from runtime.data.blame import blamed
from runtime.data.place import Place
from runtime.frames import describe
from runtime.state import KEPT, Tree

_CALL = "state_dict()"


@runtime_checkable
class Stateful(Protocol):
    """A source that can say where it stands, and stand there again."""

    def state_dict(self) -> object:
        """Return numbers, text, arrays, and lists and mappings of them."""
        ...

    def load_state_dict(self, state: Tree) -> object:
        """Take a state back; the next `iter` goes on from there."""
        ...


@runtime_checkable
class _ArrayLike(Protocol):
    """What numpy can read as an array, such as a tensor of a framework."""

    def __array__(self) -> npt.NDArray[np.generic]:
        """Return the array."""
        ...


def read_state(source: Stateful, place: Place) -> Tree:
    """Return a copy of a source's state. Raises SpecError: GS226 it raised, GS253 it holds what cannot be saved."""
    with blamed(place):
        state = source.state_dict()
    return _copy(state, _CALL, place)


def load_state(source: Stateful, state: Tree, place: Place) -> None:
    """Give a source a state, in arrays of its own. Raises SpecError: GS226 it raised."""
    owned = _copy(state, _CALL, place)
    with blamed(place):
        source.load_state_dict(owned)


def _copy(value: object, path: str, place: Place) -> Tree:
    """Return a tree of plain data and new arrays; ``path`` is how a user would write the way to the value."""
    match value:
        case None | bool() | str():
            return value
        case np.bool_():
            return bool(value)
        case int() | np.integer():
            return int(value)
        case float() | np.floating():
            return _finite(float(value), path, place)
        case Mapping():
            return _copy_mapping(cast("Mapping[object, object]", value), path, place)
        case list() | tuple():
            entries = cast("list[object]", value)
            return [_copy(entry, f"{path}[{index}]", place) for index, entry in enumerate(entries)]
        case _:
            return _copy_array(value, path, place)


def _copy_mapping(mapping: Mapping[object, object], path: str, place: Place) -> Tree:
    found: dict[str, Tree] = {}
    for key, value in mapping.items():
        if not isinstance(key, str):
            raise _unkeepable(path, f"the key {key!r}", "a text", place)
        found[key] = _copy(value, f"{path}[{key!r}]", place)
    return found


def _copy_array(value: object, path: str, place: Place) -> Tree:
    """Return an array, or what can be read as one, as an array of its own."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if not isinstance(value, _ArrayLike):
        raise _unkeepable(path, f"a value of type {kind}", "numbers, text, arrays, lists or mappings", place)
    try:
        array: npt.NDArray[np.generic] = np.asarray(value).copy()
    except Exception as error:
        found = f"a value of type {kind} that numpy cannot read ({describe(error)})"
        raise _unkeepable(path, found, "an array of the host", place) from error
    if array.dtype.name not in KEPT:
        raise _unkeepable(path, f"an array of {array.dtype}", "an array of numbers", place)
    return array


def _finite(number: float, path: str, place: Place) -> float:
    if not math.isfinite(number):
        raise _unkeepable(path, f"the number {number}", "a finite number, or an array that holds it", place)
    return number


def _unkeepable(path: str, found: str, expected: str, place: Place) -> SpecError:
    message = f"a checkpoint cannot keep {path} of the source: found {found}, expected {expected}"
    return place.problem("GS253", message, help="return plain data: code is never stored in a checkpoint")
