"""Durable writes: files are on the disk when the call returns, even where the power fails a moment later."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

_UNFINISHED = re.compile(r"\..+-[0-9a-f]{8}\.new")

_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP)
"""Errors of file systems that cannot sync a folder."""


def write_file(path: Path, content: bytes) -> None:
    """Write a file and sync it to the disk."""
    with path.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def replace_file(path: Path, content: bytes) -> None:
    """Write a file atomically: a reader finds the old content or the new, never a part."""
    making = hidden_sibling(path, "new")
    try:
        write_file(making, content)
        making.replace(path)
    except BaseException:
        making.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def remove_hidden(folder: Path) -> None:
    """Remove the files in a folder that :func:`replace_file` had not moved into place when it was killed."""
    for path in folder.iterdir():
        if _UNFINISHED.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            path.unlink()


def replace_folder(place: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder of files as a whole or not at all; one that was there is replaced.

    It is written under a hidden name next to its place and moved there. A name may be a path with ``/``.
    """
    with replacing(place) as making:
        for name, content in files.items():
            make_folder((making / name).parent)
            write_file(making / name, content)
        for folder in {making, *((making / name).parent for name in files)}:
            sync_folder(folder)


@contextmanager
def replacing(place: Path) -> Generator[Path]:
    """Make a folder under a hidden name next to a place, to which it is moved in the end; removed at an error."""
    make_folder(place.parent)
    making = hidden_sibling(place, "new")
    try:
        making.mkdir()
        yield making
        _put(making, place)
    except BaseException:
        shutil.rmtree(making, ignore_errors=True)
        raise


def _put(making: Path, place: Path) -> None:
    """Move a finished folder into place; a folder cannot be moved over another, so the old one is renamed first."""
    if not place.exists():
        making.rename(place)
        sync_folder(place.parent)
        return
    aside = making.with_suffix(".old")
    place.rename(aside)
    try:
        making.rename(place)
    except BaseException:
        if not place.exists():
            aside.rename(place)
        raise
    sync_folder(place.parent)
    shutil.rmtree(aside, ignore_errors=True)  # the new one is in place; leftovers are removed later


def append_file(path: Path, content: bytes) -> None:
    """Append to a file all of the content or, where the disk is full, nothing; the file is not synced."""
    with path.open("ab", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        try:
            while content:  # a disk that fills up first writes a part, and fails only in the next call
                content = content[file.write(content) or 0 :]
        except OSError:
            file.truncate(size)
            raise


def make_folder(path: Path) -> None:
    """Make a folder and its parents, and sync their names to the disk; it may exist already."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to the disk (Windows does so by itself)."""
    if os.name == "nt":
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(opened)


def hidden_sibling(path: Path, purpose: str) -> Path:
    """Return a unique hidden name in the folder of a path: `.step-500-4f0c2a91.new`."""
    return path.with_name(f".{path.name}-{secrets.token_hex(4)}.{purpose}")
