"""Faults that hit a run at a chosen operation: inside of a write, or around a step; signals, and a disk that fills."""

from __future__ import annotations

import errno
import io
import itertools
import os
import resource
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

OUT = "out"
"""The folder of the run, whose files are watched."""
CHANGES = ("mkdir", "rename", "replace", "unlink", "rmdir", "fsync")
GROWING = ("mkdir", "open", "write")
"""What a full disk refuses for as long as it is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens to a process, and when: at the so-many-th change of the run's files, or call of the step.

    ``signals`` come one after another, the second ``gap`` operations after the first. Without signals the disk is
    full from that operation on. By ``size``, the system itself ends a write in the middle, at so many bytes of a file:
    with an error, or with the signal SIGXFSZ, which kills the process.
    """

    where: Literal["write", "step", "size"]
    number: int
    signals: tuple[str, ...] = ()
    gap: int = 0

    def __str__(self) -> str:
        """Return it in words."""
        what = f" and {self.gap} later ".join(self.signals) or "full disk"
        return f"{what} at {self.where} {self.number}"

    def arm(self) -> None:
        """Make it happen in this process."""
        match self.where:
            case "write":
                _watch_files(_Trigger(self))
            case "step":
                _watch_steps(_Trigger(self))
            case "size":
                signal.signal(signal.SIGXFSZ, signal.SIG_DFL if self.signals else signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (self.number, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


class _Trigger:
    """Counts operations, and does what the fault says when its number comes."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.due = {fault.number + place * fault.gap: place for place in range(max(1, len(fault.signals)))}
        self.count = itertools.count(1)
        self.full = False

    def meet(self, name: str, half: Callable[[], object] = lambda: None) -> None:
        """Count an operation; ``half`` does a part of it first where the process does not live to do the rest."""
        number = next(self.count)
        if not self.fault.signals:
            if number == self.fault.number or (self.full and name in GROWING):
                self.full = True
                half()
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return
        if number in self.due:
            first = self.due[number]
            for each in self.fault.signals[first:] if self.fault.gap == 0 else self.fault.signals[first : first + 1]:
                if each == "SIGKILL":
                    half()
                os.kill(os.getpid(), signal.Signals[each])


def _watch_files(trigger: _Trigger) -> None:
    """Count every change of a file or folder of the run, and every write into one."""
    for name in CHANGES:
        setattr(os, name, _counted(name, getattr(os, name), trigger))
    plain = io.open

    class Written(io.FileIO):
        def write(self, content: bytes) -> int:
            part = bytes(content)[: len(content) // 2]
            trigger.meet("write", lambda: super(Written, self).write(part))
            return super().write(content)

    def opened(file, mode="r", buffering=-1, *arguments, **options):
        if not _is_ours(file) or set(mode).isdisjoint("wax+"):
            return plain(file, mode, buffering, *arguments, **options)
        assert "b" in mode, "a run writes bytes"
        trigger.meet("open")
        raw = Written(file, mode)
        return raw if buffering == 0 else io.BufferedWriter(raw)

    io.open = opened


def _counted(name: str, function: Callable[..., object], trigger: _Trigger) -> Callable[..., object]:
    def counted(file, *arguments, **options):
        if isinstance(file, int) or _is_ours(file) or options.get("dir_fd") is not None:
            trigger.meet(name)
        return function(file, *arguments, **options)

    return counted


def _is_ours(file: object) -> bool:
    """Tell whether a path leads into the folder of the run, or is it."""
    if not isinstance(file, str | os.PathLike):
        return False
    return os.path.abspath(file).startswith(os.path.abspath(OUT))


def _watch_steps(trigger: _Trigger) -> None:
    """Count every call of the step, in whatever mode."""
    from runtime.step import Step

    call = Step.__call__

    def counted(*arguments, **options):
        outputs = call(*arguments, **options)
        trigger.meet("step")
        return outputs

    Step.__call__ = counted
