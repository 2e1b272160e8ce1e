"""The names of checkpoints: `step-500` for the one after 500 steps, hidden ones while it is made or removed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, TypeAlias

Purpose: TypeAlias = Literal["new", "old", "gone"]
"""Why a name is hidden: being written, stepped aside for its replacement, being removed."""

_WHOLE = re.compile(r"step-(0|[1-9][0-9]{0,17})")
_HIDDEN = re.compile(rf"\.({_WHOLE.pattern})-[0-9a-f]{{8}}\.(new|old|gone)")


def name_step(step: int) -> str:
    """Return the name of the checkpoint after that many steps."""
    return f"step-{step}"


def find_steps(folder: Path) -> tuple[int, ...]:
    """Return the steps of the checkpoints in a folder, in order; none where the folder cannot be listed."""
    try:
        found = [_WHOLE.fullmatch(entry.name) for entry in folder.iterdir() if entry.is_dir()]
    except OSError:
        return ()
    return tuple(sorted(int(name[1]) for name in found if name is not None))


def find_before(folder: Path) -> Path | None:
    """Return the last checkpoint before this one, beside it; None where there is none."""
    name = _WHOLE.fullmatch(folder.name)
    steps = [step for step in find_steps(folder.parent) if name is not None and step < int(name[1])]
    return folder.with_name(name_step(steps[-1])) if steps else None


def find_hidden(folder: Path, purpose: Purpose) -> dict[Path, Path]:
    """Return the hidden folders of ours that have a purpose, each with the name that it has or had when whole."""
    found = {entry: _HIDDEN.fullmatch(entry.name) for entry in folder.iterdir() if not entry.is_symlink()}
    return {
        entry: folder / name[1]
        for entry, name in sorted(found.items())
        if name is not None and name[3] == purpose and entry.is_dir()
    }
