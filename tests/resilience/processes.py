"""Command lines in processes of their own, forked from one that has imported the framework already."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.resilience.warm"])


Process = multiprocessing.process.BaseProcess
Moment = Callable[[Process], bool]
"""Waits by joining the process; tells whether this is the moment, or that the process ended before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a process ended: its exit code, or minus the signal that killed it, and what it printed."""

    code: int
    output: str


def start(arguments: list[str], folder: Path, output: Path, before: Callable[[], None] | None = None) -> Process:
    """Start a command line in a folder; what it prints goes to a file. ``before`` is done in the process first."""
    process = CONTEXT.Process(target=_run, args=(arguments, str(folder), str(output), before))
    process.start()
    return process


def run(
    arguments: list[str],
    folder: Path,
    moment: Moment | None = None,
    number: int = signal.SIGKILL,
    before: Callable[[], None] | None = None,
) -> Ended:
    """Run a command line to its end, or send it a signal at a moment and wait for its end."""
    output = folder / "output.txt"
    process = start(arguments, folder, output, before)
    if moment is not None and moment(process) and process.is_alive():
        os.kill(process.pid, number)
    process.join(60)
    assert process.exitcode is not None, "the process does not end"
    return Ended(code=process.exitcode, output=output.read_text() if output.exists() else "")


def _run(arguments: list[str], folder: str, output: str, before: Callable[[], None] | None) -> None:
    """Run a command line as a process of its own would, and leave without the clean-up of a fork."""
    os.chdir(folder)
    opened = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(opened, stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if before is not None:
        before()
    from runtime.cli import main

    main(arguments)
