"""The length of an epoch, found without reading more of the data than must be and without importing a user's class."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy.lib.format as npy

from graphspec.data import Columns, TrainingSets
from graphspec.diagnostics import SpecError
from graphspec.graph import GraphSpec
from runtime.data.arrays import column_names
from runtime.data.batches import count_batches
from runtime.data.digits import read_digits
from runtime.data.place import Place
from runtime.data.table import read_cells

_BROKEN = (OSError, ValueError, LookupError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
"""What reading a missing, damaged or locked file raises."""


def find_length(spec: GraphSpec, role: str, directory: Path | None = None) -> int | None:
    """Return how many batches an epoch of ``data.<role>`` has; None where that is not known, or none.

    Nobody knows it of a user's class before it is made, and of a file that is missing or damaged.
    """
    train = spec.data.get(role)
    if isinstance(train, TrainingSets):
        return count_turns({name: _find_length(spec, role, name, directory) for name in train.sets}, train.mix)
    return _find_length(spec, role, None, directory)


def count_turns(lengths: Mapping[str, int | None], mix: Mapping[str, float] | None) -> int | None:
    """Return how many batches an epoch of several sets has; None where one of them is of unknown length.

    Taking turns, as many rounds as the longest has batches; drawn by ``mix``, as many as all have that are drawn.
    """
    drawn = [length for name, length in lengths.items() if mix is None or mix[name] > 0]
    known = [length for length in drawn if length is not None]
    if len(known) < len(drawn):
        return None
    return sum(known) if mix is not None else len(lengths) * max(known)


def _find_length(spec: GraphSpec, role: str, dataset: str | None, directory: Path | None) -> int | None:
    """Return how many batches an epoch of one set has; None where that is not known, or none."""
    source = spec.source(role, dataset)
    if source is None or source.class_path is not None:
        return None
    place = Place(spec=spec, role=role, dataset=dataset)
    try:
        return count_batches(_count_samples(place, directory or Path()), place) or None
    except (SpecError, *_BROKEN):
        return None


def _count_samples(place: Place, directory: Path) -> int:
    match place.source:
        case "digits":
            return len(read_digits(place))
        case "npz":
            names = column_names(place).values()
            return _count_rows(directory / (place.declared.path or ""), next(iter(names), ""))
        case _:
            return len(read_cells(place, directory).rows)


def _count_rows(path: Path, columns: Columns) -> int:
    """Return the leading size of an array in a file, from the array's header alone."""
    name = columns if isinstance(columns, str) else columns[0]
    with zipfile.ZipFile(path) as archive, archive.open(f"{name}.npy") as file:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape: tuple[int, ...] = read(file)[0]
    return shape[0]
