"""Read a checkpoint, and nothing that differs by a bit from what was written."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from runtime.checkpoints.content import Checkpoint
from runtime.checkpoints.manifest import ForeignError, Manifest, StateFile, read_manifest
from runtime.checkpoints.problems import damaged, find_store, foreign, missing, unreadable
from runtime.checkpoints.tensors import Signature, describe, unpack
from runtime.checkpoints.write import MANIFEST, STATE
from runtime.state import Array


def read_checkpoint(folder: Path) -> Checkpoint:
    """Return the checkpoint in a folder, every checksum verified; nothing in it is run or imported.

    Raises SpecError: GS240 where it is missing or not readable, GS241 where it is damaged, GS242 where it is none of
    ours or of a newer format.
    """
    try:
        return _read(folder)
    except ForeignError as error:
        raise foreign(folder, str(error)) from error
    except ValueError as error:
        raise damaged(folder, str(error)) from error
    except MemoryError as error:
        raise damaged(folder, "it is larger than the memory") from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise missing(folder) from error
    except OSError as error:
        raise unreadable(folder, error) from error


def _read(folder: Path) -> Checkpoint:
    manifest = _read_manifest(folder)
    arrays = _read_arrays(folder, manifest.state)
    _compare(manifest.tensors, describe(arrays))
    return Checkpoint(arrays={name: arrays[name] for name in manifest.tensors}, sections=manifest.sections)


def _read_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    if not folder.is_dir() or find_store(folder) is not None:
        raise FileNotFoundError(folder)
    if not path.is_file():
        error = ValueError if (folder / STATE).exists() else ForeignError
        raise error(f"it has no {MANIFEST}")
    try:
        return read_manifest(path.read_bytes())
    except ForeignError:
        raise
    except ValueError as error:
        raise ValueError(f"{MANIFEST}: {error}") from error


def _read_arrays(folder: Path, state: StateFile) -> dict[str, Array]:
    path = _find_file(folder, state.file)
    size = path.stat().st_size
    if size != state.bytes:
        raise ValueError(f"{state.file} has {size:,} bytes of {state.bytes:,}")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != state.sha256:
        raise ValueError(f"{state.file} does not agree with its checksum")
    try:
        return unpack(content)
    except ValueError as error:
        raise ValueError(f"{state.file}: {error}") from error


def _find_file(folder: Path, name: str) -> Path:
    """Return the file of a name that a manifest gives, which leads nowhere out of its folder."""
    is_plain = name.isprintable() and name not in ("", ".", "..") and not any(mark in name for mark in "/\\:")
    path = folder / name if is_plain else folder
    if not is_plain or path.resolve().parent != folder.resolve():
        raise ValueError(f"{MANIFEST} names the file {name!r}, which is not in the folder")
    if not path.is_file():
        raise ValueError(f"it has no {name}")
    return path


def _compare(wanted: Mapping[str, Signature], found: Mapping[str, Signature]) -> None:
    """Raise ValueError where a file has other arrays than its manifest says."""
    for name in wanted.keys() - found.keys():
        raise ValueError(f"the array {name!r} is missing")
    for name in found.keys() - wanted.keys():
        raise ValueError(f"the array {name!r} is not in {MANIFEST}")
    for name, signature in wanted.items():
        if found[name] != signature:
            raise ValueError(f"the array {name!r} is {found[name]}, and {MANIFEST} says {signature}")
