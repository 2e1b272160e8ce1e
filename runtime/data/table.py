"""Tables: files of comma-separated values with a header, read column by column."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from graphspec.diagnostics import SpecError
from runtime.data.arrays import Array
from runtime.data.place import Place
from runtime.data.stored import Stored, store

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

    Raises SpecError: GS221 unreadable or no table, GS222 a cell that is no number, and what :func:`store` raises.
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
    """Return the names of the columns; numbers are not taken for names."""
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
