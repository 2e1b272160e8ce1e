"""The record of what was measured: a file of figures for each benchmark, which the tables of the page are made from.

Figures that are older than the record were taken from the page, which had fewer of them, and rounded: some rows lack
figures, and a row may stand for several, such as the least of nine ratios.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.figures import Row, write

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, kw_only=True)
class Record:
    """The figures of a benchmark, and where they come from."""

    command: str
    """What was run; BEFORE is the folder of the older tree."""
    date: str
    commit: str
    """That of the tree; of figures older than this record, the one that brought them to the page."""
    before: str | None
    """The commit of the older tree, where one was measured."""
    rounds: int | None
    machine: Mapping[str, Any]
    """Versions, the number of cores, and the load when the measurement began."""
    figures: Sequence[Row]


def read(folder: Path, name: str) -> Record:
    """Return the record of a benchmark."""
    return Record(**json.loads((folder / f"{name}.json").read_text(encoding="utf-8")))


def store(record: Record, folder: Path, name: str) -> None:
    """Write the record of a benchmark in the place of the one before."""
    write(folder / f"{name}.json", asdict(record))
