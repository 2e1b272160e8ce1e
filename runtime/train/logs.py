"""Metrics files: ``metrics.jsonl`` and ``metrics.csv``, a line for each logged step, readable during a run."""

from __future__ import annotations

import csv
import importlib
import io
import json
import math
import os
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from graphspec.declare.run import LogName
from runtime.checkpoints.disk import append_file, replace_file
from runtime.checkpoints.format import open_object
from runtime.folder import cannot_write
from runtime.problems import problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The outputs of one step, as numbers, and the seconds since training began."""

    step: int
    seconds: float
    values: Mapping[str, float]


def scalars(arrays: Mapping[str, npt.NDArray[np.generic]]) -> Mapping[str, float]:
    """Return the arrays of one element, as numbers."""
    return {name: float(array.reshape(()).item()) for name, array in arrays.items() if array.size == 1}


def read_latest(latest: Mapping[str, object], read: Callable[[object], npt.NDArray[np.generic]]) -> Mapping[str, float]:
    """Return the latest scalar values, in order; those from a checkpoint are numbers already."""
    found: dict[str, float] = {}
    for name, value in latest.items():
        found.update({name: value} if isinstance(value, float) else scalars({name: read(value)}))
    return found


def not_finite(row: Row) -> tuple[str, ...]:
    """Return the names of the values that are nan or infinite."""
    return tuple(name for name, value in row.values.items() if not math.isfinite(value))


def format_value(value: float) -> str:
    """Return a number in about six characters: four significant digits, without trailing zeros."""
    if not math.isfinite(value):
        return str(value)
    return f"{value:.4f}" if 1e-3 <= abs(value) < 1e3 or value == 0 else f"{value:.4g}"


JSONL, CSV = "metrics.jsonl", "metrics.csv"


TIMES = ("step", "time")
"""The columns that are not values."""


class Log(Protocol):
    """Something that keeps the logged rows of a run."""

    def add(self, row: Row) -> None:
        """Keep a row."""
        ...

    def close(self) -> None:
        """Write the rows that are not in the file yet."""
        ...


class JsonLines:
    """One JSON object per row: step, time, and every value; a value that is not finite is null."""

    def __init__(self, path: Path, before: Sequence[Row] = ()) -> None:
        self.path = path
        _replace(path, "".join(map(_to_json, before)))

    def add(self, row: Row) -> None:
        """Append a row to the file."""
        _append(self.path, _to_json(row))

    def close(self) -> None:
        """Do nothing: every row is in the file."""


class CommaSeparated:
    """A table with the columns step, time and the values in the order in which they were first seen."""

    def __init__(self, path: Path, before: Sequence[Row] = ()) -> None:
        self.path = path
        self.columns = tuple(dict.fromkeys(name for row in before for name in row.values))
        self.rows = list(before)
        _replace(path, self._format(before, header=bool(before)))

    def add(self, row: Row) -> None:
        """Append a row; rewrite the file where the row has a value that no earlier row has."""
        self.rows.append(row)
        new = tuple(name for name in row.values if name not in self.columns)
        self.columns += new
        if new or len(self.rows) == 1:
            _replace(self.path, self._format(self.rows, header=True))
        else:
            _append(self.path, self._format([row], header=False))

    def close(self) -> None:
        """Do nothing: every row is in the file."""

    def _format(self, rows: Sequence[Row], *, header: bool) -> str:
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        if header:
            writer.writerow((*TIMES, *self.columns))
        for row in rows:
            cells = (row.values.get(name, "") for name in self.columns)
            writer.writerow((row.step, round(row.seconds, 6), *cells))
        return text.getvalue()


def _to_json(row: Row) -> str:
    """Return the line of a row."""
    values = {name: value if math.isfinite(value) else None for name, value in row.values.items()}
    return json.dumps({"step": row.step, "time": round(row.seconds, 6), **values}, allow_nan=False) + "\n"


def _replace(path: Path, text: str) -> None:
    """Replace a file atomically: a kill or a full disk loses no row of the earlier one."""
    try:
        replace_file(path, text.encode())
    except OSError as error:
        raise cannot_write(path, error) from error


def _append(path: Path, text: str) -> None:
    """Add lines to a file, or none of them."""
    try:
        append_file(path, text.encode())
    except OSError as error:
        raise cannot_write(path, error) from error


def open_logs(folder: Path, names: Sequence[LogName], before: Sequence[Row] = (), made: int = 0) -> tuple[Log, ...]:
    """Return a log in the folder for each name, in order, that continues after the rows ``before`` of ``made`` steps.

    All other rows in a file are dropped: a killed run made those steps after its newest checkpoint.
    Raises SpecError: GS234 a file that cannot be written, GS254 the package for TensorBoard is missing.
    """
    logs: list[Log] = []
    for name in dict.fromkeys(names):
        match name:
            case "jsonl":
                logs.append(JsonLines(folder / JSONL, before))
            case "csv":
                logs.append(CommaSeparated(folder / CSV, before))
            case "tensorboard":
                logs.append(Events(folder, after=max(made, before[-1].step if before else 0)))
    return tuple(logs)


def read_rows(folder: Path, last: int, count: int | None = None) -> tuple[Row, ...]:
    """Return the first ``count`` logged rows of a run, all where that is not known, and none after the step ``last``.

    Without a file there are none. An incomplete last line, from a run killed while writing it, is ignored. Raises
    SpecError (GS247) where a line before it is not a row.
    """
    files = ((folder / JSONL, _read_json_lines), (folder / CSV, _read_table))
    lines, table = (_read(path, read, last)[:count] if path.exists() else () for path, read in files)
    both = tuple(zip(lines, table, strict=False))
    if any(line.step != cells.step or line.values.keys() != cells.values.keys() for line, cells in both):
        return max(table, lines, key=len)
    # Values are in the order of the lines, but from the table, which has infinities.
    merged = [replace(line, values={name: cells.values[name] for name in line.values}) for line, cells in both]
    return (*merged, *lines[len(both) :], *table[len(both) :])


def _read(path: Path, read: Callable[[list[str]], Iterator[Row]], last: int) -> tuple[Row, ...]:
    """Return the rows in a file up to a step."""
    rows: list[Row] = []
    try:
        text = path.read_text(encoding="utf-8")
        rows.extend(read(text[: text.rfind("\n") + 1].splitlines()))
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        message = f"{str(path)!r} is not a metrics file: row {len(rows) + 1}: {reason}"
        raise problem("GS247", message, help="move the file away: the run will write a new one") from error
    return tuple(row for row in rows if row.step <= last)


def _read_json_lines(lines: list[str]) -> Iterator[Row]:
    for record in map(open_object, map(str.encode, lines)):
        values = {name: math.nan if value is None else float(cast("float", value)) for name, value in record.items()}
        step, seconds = int(values["step"]), values["time"]
        yield Row(step=step, seconds=seconds, values={n: v for n, v in values.items() if n not in TIMES})


def _read_table(lines: list[str]) -> Iterator[Row]:
    for record in csv.DictReader(lines):
        values = {name: float(value) for name, value in record.items() if name not in TIMES and value}
        yield Row(step=int(record["step"]), seconds=float(record["time"]), values=values)


FOLDER = "tensorboard"
_PACKAGE = "tensorboardX"
_VERSION = "brain.Event:2"
_PREFIX = "events.out.tfevents"
_NAME = re.compile(rf"{re.escape(_PREFIX)}\.([0-9]{{20}})\.")


class Events:
    """A file of events in the folder ``tensorboard`` of a run; values that are not finite are left out.

    tensorboardX gives the events and their checksums. Its writer is not used: it writes in a thread of its own, so a
    kill would lose the last rows, and on a full disk it would wait for ever.
    """

    def __init__(self, folder: Path, *, after: int) -> None:
        """Continue after a step: hide what earlier files have for later steps.

        Raises SpecError: GS234 the file cannot be written, GS254 tensorboardX is not installed.
        """
        self._proto = _import("proto.event_pb2")
        self._checksum = _import("record_writer").masked_crc32c
        place = folder / FOLDER
        place.mkdir(exist_ok=True)
        # The files are read in the order of their names: this one must come last, even where the clock was set back.
        before = [int(name[1]) for name in map(_NAME.match, os.listdir(place)) if name is not None]
        number = max([time.time_ns(), *(each + 1 for each in before)])
        self.path = place / f"{_PREFIX}.{number:020d}.{socket.gethostname()}"
        self._write(file_version=_VERSION)
        self._write(step=after + 1, session_log={"status": self._proto.SessionLog.START})

    def add(self, row: Row) -> None:
        """Add a row's values, each under its own name."""
        finite = [{"tag": name, "simple_value": value} for name, value in row.values.items() if math.isfinite(value)]
        self._write(step=row.step, summary={"value": finite})

    def close(self) -> None:
        """Do nothing: every row is in the file."""

    def _write(self, **fields: object) -> None:
        """Append an event: its length and its content, each with a checksum (TensorFlow's format of records)."""
        content = cast("bytes", self._proto.Event(wall_time=time.time(), **fields).SerializeToString())
        length = struct.pack("<Q", len(content))
        sums = (struct.pack("<I", self._checksum(part)) for part in (length, content))
        try:
            append_file(self.path, b"".join((length, next(sums), content, next(sums))))
        except OSError as error:
            raise cannot_write(self.path, error) from error


def _import(name: str) -> ModuleType:
    """Return a module of tensorboardX. Raises SpecError: GS254 it is not installed."""
    try:
        importlib.import_module(_PACKAGE)
        return importlib.import_module(f"{_PACKAGE}.{name}")
    except ImportError as error:
        help = "pip install 'stepgraph[tensorboard]', or take `tensorboard` out of `run.log`"
        raise problem("GS254", "logging for TensorBoard needs the package tensorboardX", help=help) from error
