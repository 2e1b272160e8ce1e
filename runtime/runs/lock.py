"""The lock of a run's folder: one process works in it at a time."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
import weakref
from pathlib import Path
from types import TracebackType
from typing import Self

from graphspec.diagnostics import SpecError
from runtime.folder import LOCK, cannot_write
from runtime.problems import problem

if sys.platform == "win32":
    import msvcrt

    _FAR = 1 << 30
    """The locked byte: Windows lets nobody read what is locked, and the text of the file is for readers."""

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

    The system holds it for the process and lets it go when that ends, however it ends: there is no stale lock to
    remove. Processes forked by the holder do not hold it. Entering raises SpecError: GS244 where another process works
    in the folder, GS234 where the file cannot be made.
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
            told = self._explain(file, error)
            os.close(file)
            raise told from error
        self._file = file
        _HELD.add(self)
        with contextlib.suppress(OSError):  # on a full disk the lock still holds; only its message says less
            os.ftruncate(file, 0)
            os.write(file, f"{os.getpid()} {socket.gethostname()} {time.strftime('%Y-%m-%dT%H:%M:%S%z')}\n".encode())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Let the lock go; the file stays, because another process may be about to take it."""
        self.release()

    def release(self) -> None:
        """Let the lock go before the end of the ``with``; in a forked process, leave it to the one that took it."""
        _HELD.discard(self)
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _explain(self, file: int, error: OSError) -> SpecError:
        """Return the error of a lock that is not to be had."""
        folder = str(self._path.parent)
        if isinstance(error, BlockingIOError | PermissionError):  # PermissionError is what Windows says
            help = "wait until it has ended, or end it; another run goes into another folder, with --out"
            return problem("GS244", f"{folder!r} is in use by {_read_holder(file)}", help=help)
        reason = (error.strerror or str(error)).lower()
        help = "the file system has no locks: put the run into a folder on another one, with --out"
        return problem("GS244", f"cannot lock {str(self._path)!r}: {reason}", help=help)


_HELD: weakref.WeakSet[Lock] = weakref.WeakSet()


def _read_holder(file: int) -> str:
    """Return who holds a lock, as far as its file tells."""
    with contextlib.suppress(OSError):
        match os.read(file, 1000).decode("utf-8", "replace").split():
            case [pid, host, when]:
                return f"process {pid} on {host}, since {when}"
            case _:
                pass
    return "another process"


def _release_all() -> None:
    """Close the copies of held locks in a forked process, such as a loader's worker, which may live longer than us."""
    for lock in tuple(_HELD):
        lock.release()


if sys.platform != "win32":
    os.register_at_fork(after_in_child=_release_all)
