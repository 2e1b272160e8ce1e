"""The format of checkpoints: written and read as a whole, or not at all."""

from __future__ import annotations

import errno
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NoReturn, TypeAlias, cast

from pydantic import Field, NonNegativeInt

from graphspec.diagnostics import SpecError
from runtime.checkpoints.disk import replace_folder
from runtime.folder import CHECKPOINTS, cannot_write
from runtime.problems import problem, system_reason
from runtime.state import Array, Plain, PlainModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The content of a checkpoint: arrays by name, and all else in named sections such as `counters`.

    >>> import numpy as np
    >>> from runtime.checkpoints import Checkpoint
    >>> kept = Checkpoint(arrays={"models.net.bias": np.zeros(4)}, sections={"counters": {"steps": {"train": 5}}})
    >>> kept.arrays["models.net.bias"].shape, kept.sections["counters"]
    ((4,), {'steps': {'train': 5}})
    """

    arrays: Mapping[str, Array]
    """Arrays of any shape, of the names that :class:`State` has."""
    sections: Mapping[str, Plain]
    """Plain data as JSON has it."""


SEAL = "checksum"
_DEEPEST = 64
_WIDEST = 4096
"""Bits of a whole number: the states of random generators have 128, and Python reads 14,000."""


def seal(content: Mapping[str, Plain]) -> bytes:
    """Return the JSON of an object with its checksum; numbers are read back exactly as they are.

    The checksum is the sha256 of the object without it, in order, without spaces and in ASCII. Raises ValueError for
    what JSON cannot hold, naming its path.
    """
    for key, value in content.items():
        _check(value, key, _DEEPEST)
    sealed = {**content, SEAL: _digest(content)}
    return (json.dumps(sealed, indent=2, allow_nan=False) + "\n").encode("ascii")


def unseal(sealed: Mapping[str, Plain]) -> Mapping[str, Plain]:
    """Return a sealed object without its checksum; raise ValueError where the two do not agree."""
    content = {key: value for key, value in sealed.items() if key != SEAL}
    if sealed.get(SEAL) != _digest(content):
        raise ValueError("its content does not agree with its checksum")
    return content


def open_object(text: bytes) -> dict[str, Plain]:
    """Return the object in a JSON text, sealed or not; raise ValueError where there is none."""
    try:
        content = cast("Plain", json.loads(text.decode("utf-8"), parse_constant=_refuse))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:
        raise ValueError("it is not JSON") from None
    if not isinstance(content, dict):
        raise ValueError("it is not a JSON object")
    return content


def _digest(content: Mapping[str, Plain]) -> str:
    try:
        text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    except (RecursionError, ValueError):
        # Only forged text gets here: nesting at the limit, or a number such as 1e999, which is read as infinity.
        raise ValueError("it has content that no checkpoint has") from None
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _refuse(word: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python's reader accepts and JSON does not have."""
    raise ValueError(word)


def _check(value: object, path: str, depth: int) -> None:
    """Raise ValueError for values that JSON would lose or change."""
    match value:
        case None | bool() | str():
            return
        case int() if value.bit_length() <= _WIDEST:
            return
        case float() if math.isfinite(value):
            return
        case list() | dict() if depth == 0:
            raise ValueError(f"{path} is nested too deeply")
        case list():
            for index, item in enumerate(cast("list[object]", value)):
                _check(item, f"{path}.{index}", depth - 1)
        case dict():
            for key, item in cast("dict[object, object]", value).items():
                if not isinstance(key, str):
                    raise ValueError(f"{path} has the key {key!r}, and keys in JSON are strings")
                _check(item, f"{path}.{key}", depth - 1)
        case int():
            raise ValueError(f"{path} is a whole number of more than {_WIDEST} bits, which JSON does not have")
        case float():
            raise ValueError(f"{path} is {value}, which JSON does not have")
        case _:
            raise ValueError(f"{path} is of the type {type(value).__name__}, which JSON does not have")


TYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
"""The element types of a checkpoint, as numpy names them."""

_RESERVED = "__metadata__"
_SURROGATE = re.compile("[\ud800-\udfff]")


class Signature(PlainModel):
    """Shape and element type of an array."""

    shape: Annotated[tuple[NonNegativeInt, ...], Field(strict=False)]
    dtype: str

    def __str__(self) -> str:
        """Return it as `float32[2, 3]`."""
        return f"{self.dtype}{list(self.shape)}"


def describe(arrays: Mapping[str, Array]) -> dict[str, Signature]:
    """Return the signatures of arrays, by name."""
    return {name: Signature(shape=array.shape, dtype=array.dtype.name) for name, array in arrays.items()}


def pack(arrays: Mapping[str, Array]) -> bytes:
    """Return arrays as a safetensors file; raise ValueError for names and types that it cannot hold."""
    import numpy as np
    from safetensors.numpy import save

    for name, array in arrays.items():
        if array.dtype.name not in TYPES:
            raise ValueError(f"{name!r} has the type {array.dtype.name}, and a checkpoint holds {', '.join(TYPES)}")
        if name == _RESERVED or _SURROGATE.search(name):
            raise ValueError(f"no array may be named {name!r}")
    return save({name: np.asarray(array, order="C") for name, array in arrays.items()})


def unpack(content: bytes) -> dict[str, Array]:
    """Return the arrays of a safetensors file; raise ValueError where it is not one."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        return dict(load(content))
    except (SafetensorError, ValueError, KeyError, TypeError, MemoryError, OverflowError) as error:
        raise ValueError(f"it is not a safetensors file ({str(error).splitlines()[0]})") from error


FORMAT = 2
"""The newest version of the format that this version reads: with files of several processes. Others have version 1."""


class ForeignError(ValueError):
    """A manifest that is intact, but not stepgraph's or of a newer format."""


class StateFile(PlainModel):
    """The file of the arrays: its name, its size in bytes and its sha256."""

    file: str
    bytes: NonNegativeInt
    sha256: str


class ShardFile(StateFile):
    """The file of one of several processes: its rows of some arrays, with the first one's place in the whole."""

    rows: dict[str, NonNegativeInt]


class Manifest(PlainModel):
    """Everything in a checkpoint except its arrays."""

    sections: dict[str, object]
    state: StateFile
    shards: Annotated[tuple[ShardFile, ...], Field(strict=False)] = ()
    versions: dict[str, str]
    tensors: dict[str, Signature]


class _Format(PlainModel):
    checkpoint: int


def read_manifest(text: bytes) -> Manifest:
    """Return the manifest in a text.

    Raises ForeignError where it is not stepgraph's or of a newer format, ValueError where it is damaged.
    """
    content: Mapping[str, Plain] = open_object(text)
    if "checkpoint" not in content and SEAL not in content:
        raise ForeignError("its manifest.json is not that of a checkpoint")
    content = unseal(content)
    version = _Format.read(content).checkpoint
    if version > FORMAT:
        raise ForeignError(f"it has format {version}, and this version of stepgraph reads up to format {FORMAT}")
    if version < 1:
        raise ForeignError(f"there is no format {version}")
    return Manifest.read(content)


_PACKAGES = ("stepgraph", "numpy", "safetensors")


def find_versions(backend: str) -> dict[str, str]:
    """Return the versions of Python, of the installed packages that stepgraph uses and of the backend's framework."""
    found = {"python": platform.python_version()}
    for package in (*_PACKAGES, backend):
        try:
            found[package] = importlib.metadata.version(package)
        except (importlib.metadata.PackageNotFoundError, ValueError):
            continue  # stepgraph run from its sources, or a framework under another name
    return found


STATE = "state.safetensors"
MANIFEST = "manifest.json"


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> int:
    """Write a checkpoint folder, sync it to the disk, and return its size in bytes.

    It is written under a hidden name next to its place and then moved there; an older checkpoint is replaced. Raises
    SpecError: GS234 where the system or the content does not allow it. Then nothing has changed.

    >>> import numpy as np
    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from runtime.checkpoints import Checkpoint, write_checkpoint
    >>> kept = Checkpoint(arrays={"models.net.0.weight": np.eye(3)}, sections={"counters": {"steps": {"train": 5}}})
    >>> write_checkpoint(Path(mkdtemp()) / "kept", kept) > 0
    True
    """
    files = make_files(folder, checkpoint)
    place = Path(os.path.abspath(folder))  # so that `.` has a name, too
    try:
        if place.is_dir() and not (place / MANIFEST).exists() and any(place.iterdir()):
            raise OSError(errno.EEXIST, "a folder that is not a checkpoint exists there")  # it would be lost
        if place.exists() and not place.is_dir():
            raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))
        replace_folder(place, files)
    except OSError as error:
        raise cannot_write(folder, error) from error
    return sum(map(len, files.values()))


def make_files(
    folder: Path,
    checkpoint: Checkpoint,
    shards: Sequence[ShardFile] = (),
    divided: Mapping[str, Signature] | None = None,
) -> dict[str, bytes]:
    """Return the files of a checkpoint by name; raise SpecError (GS234) for content that it cannot hold.

    ``shards`` are the files that processes wrote, and ``divided`` the whole arrays of which these have rows.
    """
    origin = checkpoint.sections.get("origin")
    backend = origin.get("backend") if isinstance(origin, dict) else None
    try:
        state = pack(checkpoint.arrays)
        signatures = {**describe(checkpoint.arrays), **(divided or {})}
        tensors = {name: signature.model_dump(mode="json") for name, signature in signatures.items()}
        files: dict[str, Plain] = {"state": describe_file(STATE, state).model_dump(mode="json")}
        files |= {"shards": [each.model_dump(mode="json") for each in shards]} if shards else {}
        manifest = seal(
            {
                "checkpoint": FORMAT if shards else 1,
                "sections": dict(checkpoint.sections),
                **files,
                "versions": dict[str, Plain](find_versions(backend if isinstance(backend, str) else "")),
                "tensors": dict[str, Plain](tensors),
            }
        )
    except ValueError as error:
        raise cannot_hold(folder, error) from error
    return {STATE: state, MANIFEST: manifest}


def cannot_hold(folder: Path, error: ValueError) -> SpecError:
    """Return the error of content that a checkpoint cannot hold."""
    help = "a state holds arrays of numbers, and what JSON can say"
    return problem("GS234", f"cannot write {str(folder)!r}: {error}", help=help)


def describe_file(name: str, content: bytes) -> StateFile:
    """Return what a manifest says of a file."""
    return StateFile(file=name, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())


Purpose: TypeAlias = Literal["new", "old", "gone"]
"""Why a name is hidden: being written, being replaced, being removed."""

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


def find_hidden(folder: Path, purpose: Purpose) -> dict[Path, Path]:
    """Return the hidden folders of checkpoints with a purpose, each with the name of the complete checkpoint."""
    found = {entry: _HIDDEN.fullmatch(entry.name) for entry in folder.iterdir() if not entry.is_symlink()}
    return {
        entry: folder / name[1]
        for entry, name in sorted(found.items())
        if name is not None and name[3] == purpose and entry.is_dir()
    }


_MOST_NAMED = 5


def missing(folder: Path) -> SpecError:
    """Return the error of a missing checkpoint, with the names of those that exist."""
    message = (
        f"there is no checkpoint {str(folder)!r}" if not folder.is_dir() else f"{str(folder)!r} is not a checkpoint"
    )
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
    """Return the folder of checkpoints for the folder of a run, or for that folder itself; else None."""
    return next((place for place in (folder, folder / CHECKPOINTS) if find_steps(place)), None)


def damaged(folder: Path, reason: str) -> SpecError:
    """Return the error of a damaged checkpoint, with the name of the one before it."""
    name = _WHOLE.fullmatch(folder.name)
    before = [step for step in find_steps(folder.parent) if name is not None and step < int(name[1])]
    help = "remove that folder; no checkpoint before it is left, so start the run again"
    if before:
        help = f"remove that folder and resume from {name_step(before[-1])}"
    return problem("GS241", f"the checkpoint {str(folder)!r} is damaged: {reason}", help=help)


def read_checkpoint(folder: Path) -> Checkpoint:
    """Return the checkpoint in a folder, after verifying every checksum; nothing in it is run or imported.

    Raises SpecError: GS240 where it is missing or not readable, GS241 where it is damaged, GS242 where it is not
    stepgraph's or of a newer format.

    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> from runtime.checkpoints import Checkpoint, read_checkpoint, write_checkpoint
    >>> place = Path(mkdtemp()) / "kept"
    >>> _ = write_checkpoint(place, Checkpoint(arrays={}, sections={"counters": {"steps": {"train": 5}}}))
    >>> read_checkpoint(place).sections["counters"]
    {'steps': {'train': 5}}
    """
    try:
        return _read(folder)
    except ForeignError as error:
        help = "name a folder that a run or `step.save` wrote; one of a newer format needs a newer stepgraph"
        message = f"{str(folder)!r} is not a checkpoint that can be read: {error}"
        raise problem("GS242", message, help=help) from error
    except ValueError as error:
        raise damaged(folder, str(error)) from error
    except MemoryError as error:
        raise damaged(folder, "it is larger than the memory") from error
    except (FileNotFoundError, NotADirectoryError) as error:
        raise missing(folder) from error
    except OSError as error:
        help = "check the permissions of the folder and of the files in it"
        message = f"cannot read the checkpoint {str(folder)!r}: {system_reason(error)}"
        raise problem("GS240", message, help=help) from error


def _read(folder: Path) -> Checkpoint:
    """Return the checkpoint in a folder; raise ForeignError, ValueError or OSError for what is wrong with it."""
    path = folder / MANIFEST
    if not folder.is_dir() or find_store(folder) is not None:
        raise FileNotFoundError(folder)
    if not path.is_file():
        error = ValueError if (folder / STATE).exists() else ForeignError
        raise error(f"it has no {MANIFEST}")
    try:
        manifest = read_manifest(path.read_bytes())
    except ForeignError:
        raise
    except ValueError as error:
        raise ValueError(f"{MANIFEST}: {error}") from error
    arrays = _open(folder, manifest.state)
    arrays |= _join(folder, manifest.shards)
    found = describe(arrays)
    for name, signature in manifest.tensors.items():
        if name not in found:
            raise ValueError(f"the array {name!r} is missing")
        if found[name] != signature:
            raise ValueError(f"the array {name!r} is {found[name]}, and {MANIFEST} says {signature}")
    for name in found.keys() - manifest.tensors.keys():
        raise ValueError(f"the array {name!r} is not in {MANIFEST}")
    sections = cast("dict[str, Plain]", manifest.sections)
    return Checkpoint(arrays={name: arrays[name] for name in manifest.tensors}, sections=sections)


def _join(folder: Path, files: Sequence[ShardFile]) -> dict[str, Array]:
    """Return the whole arrays of which several files have rows; raise ValueError where some are missing, or twice."""
    import numpy as np

    rows: dict[str, list[tuple[int, Array]]] = {}
    for each in files:
        arrays = _open(folder, each)
        if arrays.keys() != each.rows.keys():
            raise ValueError(f"{each.file} has other arrays than {MANIFEST} says")
        for name, array in arrays.items():
            rows.setdefault(name, []).append((each.rows[name], array))
    joined: dict[str, Array] = {}
    for name, found in sorted(rows.items()):
        found.sort(key=lambda pair: (pair[0], len(pair[1])))  # an empty part begins where the whole ends
        reached = 0
        for begin, array in found:
            if begin != reached:
                raise ValueError(f"rows of the array {name!r} are missing or duplicated")
            reached += len(array)
        joined[name] = np.concatenate([array for _, array in found])
    return joined


def _open(folder: Path, state: StateFile) -> dict[str, Array]:
    """Return the arrays in a file that a manifest names; raise ValueError where it is another."""
    name = state.file
    is_plain = name.isprintable() and name not in ("", ".", "..") and not any(mark in name for mark in "/\\:")
    path = folder / name if is_plain else folder
    if not is_plain or path.resolve().parent != folder.resolve():
        raise ValueError(f"{MANIFEST} names the file {name!r}, which is not in the folder")
    if not path.is_file():
        raise ValueError(f"it has no {name}")
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
