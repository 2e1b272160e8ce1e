"""The folder a run writes into."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from runtime.problems import problem

CHECKPOINT = "checkpoint"
_TRACES = ("metrics.jsonl", "metrics.csv", CHECKPOINT)
"""What shows that a folder belongs to a run."""


def make_folder(name: str, wanted: Path | None) -> Path:
    """Make and return the run's folder: ``wanted``, or ``runs/<name>``, ``runs/<name>-2``, ... the first that is free.

    Raises SpecError: GS231 where ``wanted`` holds another run, GS234 where it cannot be made.
    """
    try:
        return _make_numbered(name) if wanted is None else _make(wanted)
    except OSError as error:
        raise cannot_write(wanted or Path("runs"), error) from error


def _make(folder: Path) -> Path:
    taken = next((trace for trace in _TRACES if (folder / trace).exists()), None)
    if taken is not None:
        message = f"{str(folder)!r} holds a run already ({taken})"
        raise problem("GS231", message, help="choose another folder with --out, or move that one away")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _make_numbered(name: str) -> Path:
    base = re.sub(r"[^\w.-]+", "-", name).strip(".-") or "run"
    for number in itertools.count(1):
        folder = Path("runs") / (base if number == 1 else f"{base}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise AssertionError("counting ends never")


def cannot_write(path: Path, error: OSError) -> Exception:
    """Return the error of a file or folder that cannot be written."""
    return problem("GS234", f"cannot write {str(path)!r}: {(error.strerror or str(error)).lower()}")
