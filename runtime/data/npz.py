"""Arrays of a file that ``numpy.savez`` wrote; nothing in it can run code, because pickles are refused."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import numpy as np
from numpy.lib.npyio import NpzFile

from runtime.data.arrays import Array
from runtime.data.place import Place
from runtime.data.stored import Stored, store

_SAVE = "write it with numpy.savez(path, image=..., label=...)"


def read_npz(place: Place, directory: Path) -> Stored:
    """Return the arrays that the spec's inputs name; the path is relative to ``directory``, the spec's own.

    Raises SpecError: GS221 unreadable or not an npz, GS222 not plain numbers, and what :func:`store` raises.
    """
    path = directory / (place.declared.path or "")
    with _opened(path, place) as held:
        return store(held, lambda name: _read_array(held, name, path, place), place)


@contextmanager
def _opened(path: Path, place: Place) -> Generator[Mapping[str, object]]:
    try:
        with path.open("rb") as file:
            yield _as_archive(np.load(file, allow_pickle=False), path, place)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise place.problem("GS221", f"cannot read {str(path)!r}: {reason}", "path") from error
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise place.problem("GS221", f"{str(path)!r} is not a file of arrays", "path", help=_SAVE) from error


def _as_archive(loaded: object, path: Path, place: Place) -> Mapping[str, object]:
    if not isinstance(loaded, NpzFile):
        raise place.problem("GS221", f"{str(path)!r} holds one array without a name", "path", help=_SAVE)
    return cast("Mapping[str, object]", loaded)


def _read_array(held: Mapping[str, object], name: str, path: Path, place: Place) -> Array:
    try:
        array: Array = np.asarray(held[name])
    except ValueError as error:
        raise _not_numbers(name, path, place) from error
    if array.dtype.kind not in "biuf" or array.ndim == 0:
        raise _not_numbers(name, path, place)
    return array


def _not_numbers(name: str, path: Path, place: Place) -> Exception:
    message = f"{name!r} in {str(path)!r} is not an array of numbers with one row for each sample"
    notes = ("Python objects are never read: unpickling them can run any code",)
    return place.problem("GS222", message, "path", notes=notes, help=_SAVE)
