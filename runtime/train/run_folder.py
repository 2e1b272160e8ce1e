"""The record of a run: everything that it was started with, in ``run.json``."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import sys
import time
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

from compiler.timing.units import Pace
from graphspec.diagnostics import SpecError
from runtime.checkpoints.disk import replace_file
from runtime.checkpoints.format import Fields, open_object, seal, unseal
from runtime.folder import LOCK, RECORD, cannot_write
from runtime.problems import problem

if TYPE_CHECKING:
    from compiler import Plan


FORMAT = 1
"""The version of the record that this version writes, and the newest it reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Everything that a run was started with and that resuming it needs."""

    name: str
    versions: Mapping[str, str]
    """The versions of Python and of the packages, by name."""
    seed: int
    device: str
    backend: str
    order: str
    steps: int
    """The steps that the user asked for; 0 where the spec says how many."""
    spec: str
    """The spec with every default and interpolation resolved, as `graphspec.write.render.render` writes it."""
    overrides: tuple[str, ...]
    plan: str
    """The :func:`runtime.train.run_folder.fingerprint` of the plan."""
    source: str
    """The generated Python."""
    allow: tuple[str, ...]
    spec_path: str
    """The path of the spec, from the folder of the run."""
    pace: Pace
    """The lengths of epochs, steps and the run that were known when the step was compiled."""

    def computes_as(self, other: Record) -> bool:
        """Return whether runs made with either have the same numbers, for any number of steps."""
        other = replace(other, steps=self.steps, overrides=self.overrides, allow=self.allow)
        return self == replace(other, spec_path=self.spec_path, pace=self.pace)


def write_record(folder: Path, record: Record, name: str = RECORD) -> None:
    """Write the record of a run into its folder, as a whole or not at all; raise SpecError (GS234) where that fails."""
    content = seal(
        {
            "run": FORMAT,
            "name": record.name,
            "versions": dict(record.versions),
            "seed": record.seed,
            "device": record.device,
            "backend": record.backend,
            "order": record.order,
            "steps": record.steps,
            "spec": record.spec,
            "overrides": list(record.overrides),
            "plan": record.plan,
            "source": record.source,
            "allow": list(record.allow),
            "spec_path": record.spec_path,
            "pace": {"epoch": record.pace.epoch, "batch": record.pace.batch, "run": record.pace.run},
        }
    )
    try:
        replace_file(folder / name, content)
    except OSError as error:
        raise cannot_write(folder / name, error) from error


def read_record(folder: Path) -> Record:
    """Return the record of the run in a folder; raise SpecError (GS243) where it is missing, damaged or newer."""
    try:
        return _read(Fields(content=unseal(open_object((folder / RECORD).read_bytes()))))
    except (FileNotFoundError, NotADirectoryError) as error:
        help = f"name the folder of a run, which has a {RECORD} in it"
        raise problem("GS243", f"{str(folder)!r} is not the folder of a run: it has no {RECORD}", help=help) from error
    except OSError as error:
        raise _unreadable(folder, (error.strerror or str(error)).lower(), "check its permissions") from error
    except ValueError as error:
        help = f"put back the {RECORD} that the run wrote, or start a new run; its checkpoints are still there"
        raise _unreadable(folder, str(error), help) from error


def _unreadable(folder: Path, reason: str, help: str) -> SpecError:
    return problem("GS243", f"cannot read the record {str(folder / RECORD)!r}: {reason}", help=help)


def _read(fields: Fields) -> Record:
    version = fields.whole("run")
    if version != FORMAT:
        raise ValueError(f"it has format {version}, and this version of stepgraph reads format {FORMAT}")
    return Record(
        name=fields.text("name"),
        versions=fields.text_mapping("versions"),
        seed=fields.whole("seed"),
        device=fields.text("device"),
        backend=fields.text("backend"),
        order=fields.text("order"),
        steps=fields.size("steps"),
        spec=fields.text("spec"),
        overrides=fields.texts("overrides"),
        plan=fields.text("plan"),
        source=fields.text("source"),
        allow=fields.texts("allow"),
        spec_path=fields.text("spec_path"),
        pace=_read_pace(fields.part("pace")),
    )


def _read_pace(fields: Fields) -> Pace:
    """Return a pace; unknown lengths are null."""
    known = {name: fields.size(name) for name in ("epoch", "batch", "run") if fields.content.get(name) is not None}
    return Pace(**known)


def name_spec(folder: Path) -> str:
    """Return the name of a recorded spec in messages."""
    return f"{folder / RECORD}: spec"


if sys.platform == "win32":
    import msvcrt

    _FAR = 1 << 30
    """The locked byte, past the text: on Windows no other process can read a locked byte, and the text is for them."""

    def _take(file: int) -> None:
        os.lseek(file, _FAR, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        os.lseek(file, 0, os.SEEK_SET)

else:
    import fcntl

    def _take(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


class Lock:
    """Hold the lock of a folder, as in ``with Lock(folder):``.

    The system releases it when the process ends, in any way: there is no stale lock to remove. Processes
    forked by the holder do not hold it. Entering raises SpecError: GS244 where another process works in the folder,
    GS234 where the file cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        self._file: int | None = None

    def __enter__(self) -> Self:
        """Take the lock."""
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise cannot_write(self._path, error) from error
        try:
            _take(file)
        except OSError as error:
            refusal = self._explain(file, error)
            os.close(file)
            raise refusal from error
        self._file = file
        _HELD.add(self)
        with contextlib.suppress(OSError):  # on a full disk the lock still holds; only its message says less
            os.ftruncate(file, 0)
            os.write(file, f"{os.getpid()} {socket.gethostname()} {time.strftime('%Y-%m-%dT%H:%M:%S%z')}\n".encode())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Release the lock; the file stays, because another process may be about to take it."""
        self.release()

    def release(self) -> None:
        """Release the lock before the end of the ``with``; in a forked process, leave it to its holder."""
        _HELD.discard(self)
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _explain(self, file: int, error: OSError) -> SpecError:
        """Return the error of a lock that cannot be taken."""
        folder = str(self._path.parent)
        if isinstance(error, BlockingIOError | PermissionError):  # Windows raises PermissionError
            help = "wait until it has ended, or end it; another run goes into another folder, with --out"
            return problem("GS244", f"{folder!r} is in use by {_read_holder(file)}", help=help)
        reason = (error.strerror or str(error)).lower()
        help = "the file system has no locks: put the run into a folder on another one, with --out"
        return problem("GS244", f"cannot lock {str(self._path)!r}: {reason}", help=help)


_HELD: weakref.WeakSet[Lock] = weakref.WeakSet()


def _read_holder(file: int) -> str:
    """Return who holds a lock, as far as its file says."""
    with contextlib.suppress(OSError):
        match os.read(file, 1000).decode("utf-8", "replace").split():
            case [pid, host, when]:
                return f"process {pid} on {host}, since {when}"
            case _:
                pass
    return "another process"


def _release_all() -> None:
    """Close the copies of held locks in a forked process, such as a loader's worker, which may outlive this one."""
    for lock in tuple(_HELD):
        lock.release()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_release_all)


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
