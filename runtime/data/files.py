"""Tables: files of comma-separated values with a header, read column by column."""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import cast

import numpy as np
from numpy.lib.npyio import NpzFile

from graphspec.suggestions import closest
from runtime.data.arrays import Array
from runtime.data.place import Place
from runtime.data.source import Stored, store

_HELP = "the first line names the columns, every other line has one cell for each, with commas between them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The cells of a file as text; ``lines`` are the numbers of the lines in which the rows end."""

    path: Path
    names: Sequence[str]
    rows: Sequence[Sequence[str]]
    lines: Sequence[int]

    def column(self, name: str, place: Place) -> Array:
        """Return a column: int64 where all its cells are whole numbers, else float64; raise GS222 for other cells."""
        if self.names.count(name) > 1:
            raise place.problem("GS222", f"{str(self.path)!r} has {self.names.count(name)} columns {name!r}", "path")
        index = self.names.index(name)
        cells = [row[index] for row in self.rows]
        try:
            return np.array([_whole(cell) for cell in cells], dtype=np.int64)
        except (ValueError, OverflowError):
            pass
        numbers: list[float] = []
        for line, cell in zip(self.lines, cells, strict=True):
            try:
                numbers.append(_real(cell))
            except ValueError as error:
                found = f"{cell!r}" if cell.strip() else "an empty cell"
                message = f"{self.path}:{line}: expected a number in the column {name!r}, found {found}"
                help = "text becomes numbers before it is read here, such as one whole number for each class"
                raise place.problem("GS222", message, "path", help=help) from error
        return np.array(numbers, dtype=np.float64)


def read_table(place: Place, directory: Path) -> Stored:
    """Return the columns that the spec's inputs name; the path is relative to ``directory``, the spec's own.

    Raises SpecError: GS221 unreadable or not a table, GS222 a cell that is not a number, and what :func:`store` raises.
    """
    table = read_cells(place, directory)
    return store(table.names, lambda name: table.column(name, place), place)


def read_cells(place: Place, directory: Path) -> Table:
    """Return a file's cells as text. Raises SpecError: GS221 unreadable, without a header, or with uneven rows."""
    path = directory / (place.declared.path or "")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            numbered = [(reader.line_num, row) for row in reader if row]
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise place.problem("GS221", f"cannot read {str(path)!r}: {reason}", "path") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise place.problem("GS221", f"{str(path)!r} is not a table of text", "path", help=_HELP) from error
    if not numbered:
        raise place.problem("GS221", f"{str(path)!r} is empty", "path", help=_HELP)
    (line, header), *body = numbered
    names = tuple(cell.strip() for cell in header)
    try:
        for name in names:
            _real(name)
    except ValueError:
        pass  # one that is not a number is enough
    else:
        message = f"{path}:{line}: expected the names of the columns, found the numbers {', '.join(names)}"
        raise place.problem("GS221", message, "path", help=_HELP)
    for line, row in body:
        if len(row) != len(names):
            message = f"{path}:{line}: the header names {len(names)} columns, found {len(row)} cells"
            raise place.problem("GS221", message, "path", help=_HELP)
    return Table(path=path, names=names, rows=[row for _, row in body], lines=[line for line, _ in body])


def _whole(cell: str) -> int:
    """Return a whole number; raise ValueError for other text, and for Python's underscores in a number."""
    if "_" in cell:
        raise ValueError(cell)
    return int(cell)


def _real(cell: str) -> float:
    """Return a number; raise ValueError as :func:`_whole` does."""
    if "_" in cell:
        raise ValueError(cell)
    return float(cell)


_SAVE = "write it with numpy.savez(path, image=..., label=...)"


def read_npz(place: Place, directory: Path) -> Stored:
    """Return the arrays that the spec's inputs name; the path is relative to ``directory``, the spec's own.

    Raises SpecError: GS221 unreadable or not an npz, GS222 not plain numbers, and what :func:`store` raises.
    """
    path = directory / (place.declared.path or "")
    try:
        with path.open("rb") as file:
            held = np.load(file, allow_pickle=False)
            if not isinstance(held, NpzFile):
                message = f"{str(path)!r} holds one array without a name"
                raise place.problem("GS221", message, "path", help=_SAVE)
            arrays = cast("Mapping[str, object]", held)
            return store(arrays, lambda name: _read_array(arrays, name, path, place), place)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise place.problem("GS221", f"cannot read {str(path)!r}: {reason}", "path") from error
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise place.problem("GS221", f"{str(path)!r} is not a file of arrays", "path", help=_SAVE) from error


def _read_array(held: Mapping[str, object], name: str, path: Path, place: Place) -> Array:
    try:
        array: Array = np.asarray(held[name])
    except ValueError as error:
        raise _not_numbers(name, path, place) from error
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        raise _not_numbers(name, path, place)
    return array


def _not_numbers(name: str, path: Path, place: Place) -> Exception:
    message = f"{name!r} in {str(path)!r} is not an array of numbers with one row for each sample"
    notes = ("Python objects are never read: unpickling them can run any code",)
    return place.problem("GS222", message, "path", notes=notes, help=_SAVE)


_WHITE = 16.0
"""The value of full ink in the file."""
_SPLITS = ("train", "test", "all")
_ARGS = ("range", "flatten")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """``args`` of the source: the numbers for blank paper and full ink, and whether an image is one row."""

    low: float = -1.0
    high: float = 1.0
    flatten: bool = False


def read_digits(place: Place) -> Stored:
    """Return what the inputs name of ``image`` float32 [n, 1, 8, 8] (or [n, 64]) and ``label`` int64 [n].

    Raises SpecError: GS229 wrong ``split`` or ``args``, and what :func:`store` raises.
    """
    options = _read_options(place)
    # Without a split, `data.train` is the training part and every other set the test part.
    split = place.declared.split or ("train" if place.role == "train" else "test")
    if split not in _SPLITS:
        raise place.problem("GS229", f"`split` is one of {', '.join(_SPLITS)}, found {split!r}", "split")
    with files("runtime.datasets").joinpath("digits.npz").open("rb") as file, np.load(file, allow_pickle=False) as held:
        image, label, is_test = held["image"], held["label"], held["is_test"]
    chosen = slice(None) if split == "all" else is_test == (split == "test")
    scaled = options.low + image[chosen] * ((options.high - options.low) / _WHITE)
    shape = (-1, 64) if options.flatten else (-1, 1, 8, 8)
    offered = {"image": scaled.astype(np.float32).reshape(shape), "label": label[chosen].astype(np.int64)}
    return store(offered, lambda name: offered[name], place)


def _read_options(place: Place) -> Options:
    args = place.declared.args
    for name in args:
        if name not in _ARGS:
            near = closest(name, _ARGS, 1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise place.problem("GS229", f"`digits` takes no argument {name!r}{meant}", "args", name)
    flatten = args.get("flatten", False)
    if not isinstance(flatten, bool):
        raise place.problem("GS229", f"`flatten` is true or false, found {flatten!r}", "args", "flatten")
    match args.get("range", [-1, 1]):
        case [int() | float() as low, int() | float() as high] if low < high:
            return Options(low=float(low), high=float(high), flatten=flatten)
        case value:
            message = f"`range` is two numbers, the smaller one first, such as [-1, 1]; found {value!r}"
            raise place.problem("GS229", message, "args", "range")
