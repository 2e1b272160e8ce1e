"""What can be wrong with a checkpoint, and what to do about it."""

from __future__ import annotations

from pathlib import Path

from graphspec.diagnostics import SpecError
from runtime.checkpoints.naming import find_before, find_steps, name_step
from runtime.folder import CHECKPOINTS
from runtime.problems import problem

_MOST_NAMED = 5


def missing(folder: Path) -> SpecError:
    """Return the error of a checkpoint that is not there, naming those that are."""
    message = f"there is no checkpoint {str(folder)!r}" if not folder.is_dir() else f"{str(folder)!r} is no checkpoint"
    place = find_store(folder) or (folder.parent if find_steps(folder.parent) else None)
    if place is None:
        help = "a run writes its first checkpoint as `run: {checkpoint: {every: ...}}` says, and one when it ends"
        return problem("GS240", message, help=help)
    steps = find_steps(place)
    names = ", ".join(name_step(step) for step in steps[-_MOST_NAMED:])
    more = "" if len(steps) <= _MOST_NAMED else f"{len(steps) - _MOST_NAMED} others, "
    note = f"{str(place)!r} holds {more}{names}"
    return problem("GS240", message, notes=(note,), help=f"name {str(place / name_step(steps[-1]))!r}")


def find_store(folder: Path) -> Path | None:
    """Return the folder that holds checkpoints where that of a run, or that one itself, was named; else None."""
    return next((place for place in (folder, folder / CHECKPOINTS) if find_steps(place)), None)


def unreadable(folder: Path, error: OSError) -> SpecError:
    """Return the error of a checkpoint that the system does not let us read."""
    reason = (error.strerror or str(error)).lower()
    help = "check the permissions of the folder and of the files in it"
    return problem("GS240", f"cannot read the checkpoint {str(folder)!r}: {reason}", help=help)


def damaged(folder: Path, reason: str) -> SpecError:
    """Return the error of a checkpoint that is not as it was written, naming the one before it."""
    return problem("GS241", f"the checkpoint {str(folder)!r} is damaged: {reason}", help=_advise(folder))


def foreign(folder: Path, reason: str) -> SpecError:
    """Return the error of what is no checkpoint of ours, or one of a newer format."""
    help = "name a folder that a run or `step.save` wrote; one of a newer format needs a newer stepgraph"
    return problem("GS242", f"{str(folder)!r} is not a checkpoint that can be read: {reason}", help=help)


def _advise(folder: Path) -> str:
    before = find_before(folder)
    if before is None:
        return "remove that folder; no checkpoint before it is left, so start the run again"
    return f"remove that folder and resume from {before.name}"
