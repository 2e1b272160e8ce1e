"""Tables: files of comma-separated values with a header, read column by column."""

from __future__ import annotations

import csv
import zipfile
import zlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TextIO, cast

import numpy as np
from numpy.lib.npyio import NpzFile

from graphspec.diagnostics import SpecError
from graphspec.words import closest
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
            return np.array([self._number(cell, row, name, place) for row, cell in enumerate(cells)], dtype=np.float64)

    def _number(self, cell: str, row: int, name: str, place: Place) -> float:
        try:
            return _real(cell)
        except ValueError as error:
            found = f"{cell!r}" if cell.strip() else "an empty cell"
            message = f"{self.path}:{self.lines[row]}: expected a number in the column {name!r}, found {found}"
            help = "text becomes numbers before it is read here, such as one whole number for each class"
            raise place.problem("GS222", message, "path", help=help) from error


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
            return _read(file, path, place)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise place.problem("GS221", f"cannot read {str(path)!r}: {reason}", "path") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise place.problem("GS221", f"{str(path)!r} is not a table of text", "path", help=_HELP) from error


def _read(file: TextIO, path: Path, place: Place) -> Table:
    reader = csv.reader(file, strict=True)
    numbered = ((reader.line_num, row) for row in reader if row)
    names = _read_header(numbered, path, place)
    rows: list[list[str]] = []
    lines: list[int] = []
    for line, row in numbered:
        if len(row) != len(names):
            message = f"{path}:{line}: the header names {len(names)} columns, found {len(row)} cells"
            raise place.problem("GS221", message, "path", help=_HELP)
        rows.append(row)
        lines.append(line)
    return Table(path=path, names=names, rows=rows, lines=lines)


def _read_header(numbered: Iterator[tuple[int, list[str]]], path: Path, place: Place) -> tuple[str, ...]:
    """Return the names of the columns; numbers are not names."""
    line, header = next(numbered, (1, list[str]()))
    names = tuple(cell.strip() for cell in header)
    if not names:
        raise _no_header(f"{str(path)!r} is empty", place)
    if all(_is_number(name) for name in names):
        raise _no_header(
            f"{path}:{line}: expected the names of the columns, found the numbers {', '.join(names)}", place
        )
    return names


def _no_header(message: str, place: Place) -> SpecError:
    return place.problem("GS221", message, "path", help=_HELP)


def _is_number(cell: str) -> bool:
    try:
        _real(cell)
    except ValueError:
        return False
    return True


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
    with _opened(path, place) as held:
        return store(held, lambda name: _read_array(held, name, path, place), place)


@contextmanager
def _opened(path: Path, place: Place) -> Generator[Mapping[str, object]]:
    try:
        with path.open("rb") as file:
            yield _as_archive(np.load(file, allow_pickle=False), path, place)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise place.problem("GS221", f"cannot read {str(path)!r}: {reason}", "path") from error
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise place.problem("GS221", f"{str(path)!r} is not a file of arrays", "path", help=_SAVE) from error


def _as_archive(loaded: object, path: Path, place: Place) -> Mapping[str, object]:
    if not isinstance(loaded, NpzFile):
        raise place.problem("GS221", f"{str(path)!r} holds one array without a name", "path", help=_SAVE)
    return cast("Mapping[str, object]", loaded)


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
    split = _read_split(place)
    with files("runtime.datasets").joinpath("digits.npz").open("rb") as file, np.load(file, allow_pickle=False) as held:
        image, label, is_test = held["image"], held["label"], held["is_test"]
    chosen = slice(None) if split == "all" else is_test == (split == "test")
    scaled = options.low + image[chosen] * ((options.high - options.low) / _WHITE)
    shape = (-1, 64) if options.flatten else (-1, 1, 8, 8)
    offered = {"image": scaled.astype(np.float32).reshape(shape), "label": label[chosen].astype(np.int64)}
    return store(offered, lambda name: offered[name], place)


def _read_split(place: Place) -> str:
    """Return the declared split; without one, ``data.train`` is the training part and every other set the test part."""
    split = place.declared.split or ("train" if place.role == "train" else "test")
    if split not in _SPLITS:
        raise place.problem("GS229", f"`split` is one of {', '.join(_SPLITS)}, found {split!r}", "split")
    return split


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
    low, high = _read_range(args.get("range", [-1, 1]), place)
    return Options(low=low, high=high, flatten=flatten)


def _read_range(value: object, place: Place) -> tuple[float, float]:
    match value:
        case [int() | float() as low, int() | float() as high] if low < high:
            return float(low), float(high)
        case _:
            message = f"`range` is two numbers, the smaller one first, such as [-1, 1]; found {value!r}"
            raise place.problem("GS229", message, "args", "range")
