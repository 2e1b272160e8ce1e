"""The folder a run writes into."""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from graphspec.diagnostics import SpecError
from runtime.problems import problem, system_reason

RECORD = "run.json"
LOCK = "lock"
CHECKPOINTS = "checkpoints"
_TRACES = (RECORD, "metrics.jsonl", "metrics.csv", CHECKPOINTS)
"""Files that mark the folder of a run."""

_FULL = "make room on that disk, or name a folder on another one"
_DENIED = "check the permissions, or name a folder that you may write to"
_REMEDIES: Mapping[int, str] = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EFBIG: "the system limits the size of files (see `ulimit -f`); raise the limit, or name another disk",
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.EROFS: "this disk can only be read; name a folder on another one",
}


def make_folder(name: str, wanted: Path | None) -> Path:
    """Make and return the run's folder: ``wanted``, or ``runs/<name>``, ``runs/<name>-2``, ... the first that is free.

    Raises SpecError: GS231 where ``wanted`` holds another run, GS234 where it cannot be made.
    """
    try:
        if wanted is not None:
            taken = next((trace for trace in _TRACES if (wanted / trace).exists()), None)
            if taken is not None:
                message = f"{str(wanted)!r} already holds a run ({taken})"
                raise problem("GS231", message, help="continue it with --resume, or choose another folder with --out")
            wanted.mkdir(parents=True, exist_ok=True)
            return wanted
        number = max(find_numbers(name), default=0)  # never the number of one that was removed: the last is the newest
        while True:
            number += 1
            with suppress(FileExistsError):
                folder = name_folder(name, number)
                folder.mkdir(parents=True)
                return folder
    except OSError as error:
        raise cannot_write(wanted or Path("runs"), error) from error


def name_folder(name: str, number: int) -> Path:
    """Return the folder of the first, second, ... run of a spec here."""
    base = re.sub(r"[^\w.-]+", "-", name).strip(".-") or "run"
    return Path("runs") / (base if number == 1 else f"{base}-{number}")


def find_numbers(name: str) -> tuple[int, ...]:
    """Return the numbers of the folders that runs of a spec have here, in order; 1 is the one without a number."""
    first = name_folder(name, 1)
    try:
        paths = list(first.parent.iterdir())
    except OSError:
        return ()
    found = [re.fullmatch(rf"{re.escape(first.name)}(?:-([2-9]|[1-9]\d+))?", path.name) for path in paths]
    return tuple(sorted(int(each[1] or 1) for each in found if each is not None))


def cannot_write(path: Path, error: OSError) -> SpecError:
    """Return the error of a file or folder that cannot be written: the system's reason, and a remedy."""
    return problem(
        "GS234", f"cannot write {str(path)!r}: {system_reason(error)}", help=_REMEDIES.get(error.errno or 0, "")
    )
