"""The record of a run: everything that it was started with, in ``run.json``."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Self, TypeAlias

from pydantic import Field, NonNegativeInt

from graphspec.diagnostics import SpecError
from runtime.checkpoints.disk import replace_file
from runtime.checkpoints.format import open_object, seal, unseal
from runtime.folder import LOCK, RECORD, cannot_write
from runtime.problems import problem, system_reason
from runtime.state import PlainModel

if TYPE_CHECKING:
    from filelock import FileLock

    from compiler import Plan


FORMAT = 1
"""The version of the record that this version writes, and the newest it reads."""


class Lengths(PlainModel):
    """The lengths of epochs, steps and the run; None where unknown."""

    epoch: NonNegativeInt | None = None
    batch: NonNegativeInt | None = None
    run: NonNegativeInt | None = None


Texts: TypeAlias = Annotated[tuple[str, ...], Field(strict=False)]


class Record(PlainModel):
    """Everything that a run was started with and that resuming it needs."""

    name: str
    versions: dict[str, str]
    """The versions of Python and of the packages, by name."""
    seed: int
    device: str
    backend: str
    order: str
    steps: NonNegativeInt
    """The steps that the user asked for; 0 where the spec says how many."""
    spec: str
    """The spec with every default and interpolation resolved, as `graphspec.write.render.render` writes it."""
    overrides: Texts
    plan: str
    """The :func:`runtime.train.run_folder.fingerprint` of the plan."""
    source: str
    """The generated Python."""
    allow: Texts
    """What `--allow` named, for readers: no permission (see :mod:`runtime.train.allowed`)."""
    spec_path: str
    """The path of the spec, from the folder of the run."""
    pace: Lengths
    """The lengths that were known when the step was compiled."""
    launch: str = ""
    """What identifies the launcher that started it; empty without one."""
    id: str = ""
    """A random name of the run, under which its user's permissions are kept; empty in records of earlier versions."""

    def computes_as(self, other: Record) -> bool:
        """Return whether runs made with either have the same numbers, for any number of steps."""
        others = {"steps", "overrides", "allow", "spec_path", "pace", "launch", "id"}
        return self.model_dump(exclude=others) == other.model_dump(exclude=others)


def write_record(folder: Path, record: Record, name: str = RECORD) -> None:
    """Write the record of a run into its folder, as a whole or not at all; raise SpecError (GS234) where that fails."""
    try:
        replace_file(folder / name, seal({"run": FORMAT, **record.model_dump(mode="json")}))
    except OSError as error:
        raise cannot_write(folder / name, error) from error


def read_record(folder: Path) -> Record:
    """Return the record of the run in a folder; raise SpecError (GS243) where it is missing, damaged or newer."""
    try:
        content = unseal(open_object((folder / RECORD).read_bytes()))
        if content.get("run") != FORMAT:
            found = content.get("run")
            raise ValueError(f"it has format {found}, and this version of stepgraph reads format {FORMAT}")
        return Record.read(content)
    except (FileNotFoundError, NotADirectoryError) as error:
        help = f"name the folder of a run, which has a {RECORD} in it"
        raise problem("GS243", f"{str(folder)!r} is not the folder of a run: it has no {RECORD}", help=help) from error
    except OSError as error:
        raise _unreadable(folder, system_reason(error), "check its permissions") from error
    except ValueError as error:
        help = f"restore the {RECORD} that the run wrote, or start a new run; its checkpoints are still there"
        raise _unreadable(folder, str(error), help) from error


def _unreadable(folder: Path, reason: str, help: str) -> SpecError:
    return problem("GS243", f"cannot read the record {str(folder / RECORD)!r}: {reason}", help=help)


def name_spec(folder: Path) -> str:
    """Return the name of a recorded spec in messages."""
    return f"{folder / RECORD}: spec"


class Lock:
    """Hold the lock of a folder, as in ``with Lock(folder):``.

    The system releases it when the process ends, in any way: there is no stale lock to remove. Processes
    forked by the holder do not hold it. Entering raises SpecError: GS244 where another process works in the folder,
    GS234 where the file cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        self._lock: FileLock | None = None

    def __enter__(self) -> Self:
        """Take the lock."""
        from filelock import FileLock, Timeout  # only a process that trains needs it

        try:
            self._path.touch()  # the lock alone would make the folder, too
            # A lock that exists as long as its file would outlive a killed process: never fall back to one.
            lock = FileLock(self._path, blocking=False, fallback_to_soft=False, on_acquired=_sign)
        except OSError as error:
            raise cannot_write(self._path, error) from error
        folder = str(self._path.parent)
        try:
            lock.acquire()
        except Timeout as error:
            holder = "another process"
            with contextlib.suppress(OSError), self._path.open("rb", buffering=0) as file:
                file.seek(1)
                match file.read(1000).decode("utf-8", "replace").split():
                    case [pid, host, when]:
                        holder = f"process {pid} on {host}, since {when}"
                    case _:
                        pass
            help = "wait until it has ended, or end it; another run goes into another folder, with --out"
            raise problem("GS244", f"{folder!r} is in use by {holder}", help=help) from error
        except OSError as error:
            help = "the file system has no locks: put the run into a folder on another one, with --out"
            raise problem("GS244", f"cannot lock {str(self._path)!r}: {system_reason(error)}", help=help) from error
        self._lock = lock
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Release the lock; the file stays, because another process may be about to take it."""
        if self._lock is not None:
            self._lock.release()


def _sign(file: int) -> None:
    """Write the holder of a lock into its file, after a space: on Windows no other process reads the byte it locks."""
    with contextlib.suppress(OSError):  # on a full disk the lock still holds; only its message says less
        os.ftruncate(file, 0)
        os.write(file, f" {os.getpid()} {socket.gethostname()} {time.strftime('%Y-%m-%dT%H:%M:%S%z')}\n".encode())


Json: TypeAlias = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

_PROSE = frozenset(("name", "order", "decisions", "warnings", "place", "text", "notes"))
"""Keys of a plan that only inform its readers."""


def fingerprint(plan: Plan) -> str:
    """Return the sha256, in hexadecimal, of what a plan does.

    It is taken of the plan's JSON (docs/plan.md) in every mode, keys sorted and without spaces, of the rule and the
    models of every optimizer, of the kind of every model, and of shape and type of every state. Text for
    readers is left out: names of the plan and of its order, decisions, warnings, places, notes. Numbers are replaced by
    0, so that a learning rate or a label of 0.9 may change. Take it of the plan of a built step: before, what user
    classes do is only assumed.
    """
    program = plan.program
    content: dict[str, Json] = {
        "modes": {mode.mode: _strip(plan.to_json(mode.mode)) for mode in program.modes},
        "models": {model.name: [model.kind, model.class_path, model.like] for model in program.models},
        "optimizers": {each.name: [each.rule, *each.models] for each in program.optimizers},
    }
    if program.states:
        content["states"] = {state.name: [state.dtype, *state.shape] for state in program.states}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _strip(value: Json) -> Json:
    """Return a plan's JSON without the text for readers, and with 0 for every number."""
    match value:
        case bool() | str() | None:
            return value
        case int() | float():
            return 0
        case list():
            return [_strip(item) for item in value]
        case dict():
            return {key: _strip(item) for key, item in value.items() if key not in _PROSE}
