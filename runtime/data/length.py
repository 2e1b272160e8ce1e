"""The length of an epoch, found without reading more of the data than must be and without importing a user's class."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy.lib.format as npy

from graphspec.data import Columns
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
    if role not in spec.data or spec.data[role].class_path is not None:
        return None
    place = Place(spec=spec, role=role)
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
