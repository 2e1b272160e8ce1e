"""Metrics files: ``metrics.jsonl`` and ``metrics.csv``, a line for each logged step, readable while a run goes on."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from runtime.metrics import Row

LogName: TypeAlias = Literal["jsonl", "csv"]


class JsonLines:
    """One JSON object per row: step, time, and every value; a value that is not finite is null."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, row: Row) -> None:
        """Append a row to the file."""
        values = {name: value if math.isfinite(value) else None for name, value in row.values.items()}
        record = {"step": row.step, "time": round(row.seconds, 6), **values}
        with self.path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(record, allow_nan=False) + "\n")


class CommaSeparated:
    """A table with the columns step, time and the values in the order in which they were first seen."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns: tuple[str, ...] = ()
        self.rows: list[Row] = []

    def add(self, row: Row) -> None:
        """Append a row; write the file anew where the row has a value that no row before it had."""
        self.rows.append(row)
        new = tuple(name for name in row.values if name not in self.columns)
        if not new and len(self.rows) > 1:
            return self._write([row], header=False)
        self.columns += new
        return self._write(self.rows, header=True)

    def _write(self, rows: Sequence[Row], *, header: bool) -> None:
        with self.path.open("w" if header else "a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if header:
                writer.writerow(("step", "time", *self.columns))
            for row in rows:
                cells = (row.values.get(name, "") for name in self.columns)
                writer.writerow((row.step, round(row.seconds, 6), *cells))


def open_logs(folder: Path, names: Sequence[LogName]) -> tuple[JsonLines | CommaSeparated, ...]:
    """Return a log in the folder for each name, in order."""
    kinds = {"jsonl": JsonLines, "csv": CommaSeparated}
    return tuple(kinds[name](folder / f"metrics.{name}") for name in dict.fromkeys(names))
