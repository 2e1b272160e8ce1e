"""Write a checkpoint: it appears whole under its name, or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from runtime.checkpoints.content import Checkpoint
from runtime.checkpoints.disk import replace_folder
from runtime.checkpoints.manifest import Manifest, StateFile
from runtime.checkpoints.tensors import describe, pack
from runtime.checkpoints.versions import find_versions
from runtime.folder import cannot_write
from runtime.problems import problem

STATE = "state.safetensors"
MANIFEST = "manifest.json"


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> int:
    """Write a checkpoint folder and return the bytes that it takes, waiting until the disk has them.

    It is made under a hidden name beside its place and moved there; a checkpoint that was there is replaced. Raises
    SpecError: GS234 where the system or the content does not allow it, and then all is as it was.
    """
    files = _make_files(folder, checkpoint)
    place = Path(os.path.abspath(folder))  # so that `.` has a name, too
    try:
        _require_free(place)
        replace_folder(place, files)
    except OSError as error:
        raise cannot_write(folder, error) from error
    return sum(len(content) for content in files.values())


def _make_files(folder: Path, checkpoint: Checkpoint) -> dict[str, bytes]:
    """Return the content of both files by name."""
    try:
        state = pack(checkpoint.arrays)
        return {STATE: state, MANIFEST: _describe(checkpoint, state).to_json()}
    except ValueError as error:
        help = "a state holds arrays of numbers, and what JSON can say"
        raise problem("GS234", f"cannot write {str(folder)!r}: {error}", help=help) from error


def _describe(checkpoint: Checkpoint, state: bytes) -> Manifest:
    origin = checkpoint.sections.get("origin")
    backend = origin.get("backend") if isinstance(origin, dict) else None
    return Manifest(
        sections=checkpoint.sections,
        tensors=describe(checkpoint.arrays),
        state=StateFile.describe(STATE, state),
        versions=find_versions(backend if isinstance(backend, str) else ""),
    )


def _require_free(place: Path) -> None:
    """Refuse to replace what is no checkpoint: it would be lost."""
    if place.is_dir() and not (place / MANIFEST).exists() and any(place.iterdir()):
        raise OSError(errno.EEXIST, "a folder that is no checkpoint stands there")
    if place.exists() and not place.is_dir():
        raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
