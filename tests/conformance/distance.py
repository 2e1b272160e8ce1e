"""How far two records are apart: relative to the greatest element of a tensor, at least 1."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from runtime.state import State
from tests.conformance.training import Record

TOLERANCES = {"float64": 1e-10, "float32": 1e-6, "float16": 2e-3}
"""Of what two runs in float64 compute in each type: inputs and results may be of another. All others are equal."""


def find_apart(one: Record, other: Record) -> dict[str, float]:
    """Return every distance of two runs in float64 that is not tolerated."""
    kinds = types(one)
    assert kinds == types(other)
    return {name: error for name, error in distances(one, other).items() if not error <= TOLERANCES.get(kinds[name], 0)}


def types(record: Record) -> dict[str, str]:
    """Return the type of everything in a record."""
    return {name: value.dtype.name for name, value in flat(record).items()}


def distances(one: Record, other: Record) -> dict[str, float]:
    """Return the distance of every output in its step, and of every tensor and counter of the last state."""
    ours, theirs = flat(one), flat(other)
    assert sorted(ours) == sorted(theirs)
    return {name: apart(ours[name], theirs[name]) for name in ours}


def flat(record: Record) -> dict[str, np.ndarray]:
    """Return all outputs, and all that is in the last state, by name."""
    found = {f"{name} in step {at}": value for at, each in enumerate(record.outputs, 1) for name, value in each.items()}
    return found | dict(numbers(record.last))


def numbers(state: State) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays of a state, and the leaves of its counters by their paths."""
    yield from state.arrays.items()
    yield from ((path, np.asarray(value)) for path, value in leaves(state.counters, "counters"))


def leaves(tree: object, path: str) -> Iterator[tuple[str, object]]:
    """Yield the numbers among plain data; a text or nothing is a part of its path."""
    match tree:
        case Mapping():
            for key, value in tree.items():
                yield from leaves(value, f"{path}.{key}")
        case list() | tuple():
            for index, value in enumerate(tree):
                yield from leaves(value, f"{path}.{index}")
        case str() | None:
            yield f"{path} is {tree}", 0
        case _:
            yield path, tree


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference, relative to the greatest element, at least 1."""
    assert one.shape == other.shape
    diverged = (
        "a number that is not finite shows nothing: give the spec a lower learning rate, its losses smaller weights"
    )
    assert np.isfinite(one).all(), diverged
    a, b = one.astype("float64"), other.astype("float64")
    return float(np.abs(a - b).max(initial=0.0) / max(1.0, np.abs(a).max(initial=0.0)))
