"""Samples held as whole arrays in memory, one array for each input."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from runtime.data.arrays import Array, Batch, column_names, fit, pick
from runtime.data.batches import Indices
from runtime.data.place import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Arrays of equal leading length, by input."""

    arrays: Mapping[str, Array]
    length: int

    def __len__(self) -> int:
        """Return the leading length."""
        return self.length

    def take(self, indices: Indices) -> Batch:
        """Return the rows of these numbers, copied."""
        return {name: array[indices] for name, array in self.arrays.items()}


def store(names: Collection[str], read: Callable[[str], Array], place: Place) -> Stored:
    """Return the arrays that the spec's inputs name, made to fit; ``names`` is what the source offers.

    Raises SpecError: GS223 an input is not offered, GS224 unequal lengths, GS228 wrong shape or dtype.
    """
    arrays: dict[str, Array] = {}
    for name, column in column_names(place).items():
        arrays[name] = fit(pick(column, name, names, read, place), place.spec.inputs[name], name, place)
    return Stored(arrays=arrays, length=_common_length(arrays, place))


def _common_length(arrays: Mapping[str, Array], place: Place) -> int:
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        raise place.problem("GS224", f"the arrays have different numbers of samples ({shown})")
    return next(iter(lengths.values()), 0)
