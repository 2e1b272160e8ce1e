"""Command lines in processes of their own, forked from one that has imported the framework already."""

from __future__ import annotations

import importlib
import io
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import TypeVar

os.environ.setdefault("OMP_NUM_THREADS", "1")
WARM = {"torch": "tests.resilience.warm", "tensorflow": "tests.resilience.warm_tensorflow"}
"""Modules that import a framework and what a run imports besides."""
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload([WARM["torch"]])
HERE = multiprocessing.get_context("fork")
T = TypeVar("T")


Process = multiprocessing.process.BaseProcess
Moment = Callable[[Process], bool]
"""Waits by joining the process; tells whether this is the moment, or that the process ended before it."""
Before = Callable[[], None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a process ended: its exit code, or minus the signal that killed it, and what it printed."""

    code: int
    output: str


def start(arguments: list[str], folder: Path, output: Path, before: Before = None, context=SERVER) -> Process:
    """Start a command line in a folder; what it prints goes to a file. ``before`` is done in the process first."""
    process = context.Process(target=_run, args=(arguments, str(folder), str(output), before))
    process.start()
    return process


def run(
    arguments: list[str],
    folder: Path,
    moment: Moment | None = None,
    number: int = signal.SIGKILL,
    before: Before = None,
    context: BaseContext = SERVER,
) -> Ended:
    """Run a command line to its end, or send it a signal at a moment and wait for its end."""
    output = folder / "output.txt"
    process = start(arguments, folder, output, before, context)
    if moment is not None and moment(process) and process.is_alive():
        os.kill(process.pid, number)
    process.join(600)
    assert process.exitcode is not None, "the process does not end"
    return Ended(code=process.exitcode, output=output.read_text() if output.exists() else "")


def split_errors() -> None:
    """Print errors to a file of their own, `errors.txt`."""
    os.dup2(os.open("errors.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)


def attach(terminal: str) -> None:
    """Read and print on a terminal, in a session of its own."""
    os.setsid()
    opened = os.open(terminal, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(opened, stream)
    files = (io.BufferedWriter(io.FileIO(stream, "w", closefd=False)) for stream in (1, 2))
    sys.stdout, sys.stderr = (io.TextIOWrapper(each, encoding="utf-8", line_buffering=True) for each in files)
    os.environ.update(COLUMNS="110", LINES="40", TERM="xterm")


def set_variable(name: str, value: str) -> None:
    """Set a variable of the environment: a process has those of the one that it is forked from."""
    os.environ[name] = value


def call(function: Callable[..., int], folder: Path, *arguments: object) -> Ended:
    """Call a function with a folder and more in a process of its own; its exit code is what the function returns."""
    output = folder / "printed.txt"
    process = SERVER.Process(target=_exit, args=(function, str(output), folder, *arguments))
    process.start()
    process.join(600)
    assert process.exitcode is not None, "the process does not end"
    return Ended(code=process.exitcode, output=output.read_text())


def _exit(function: Callable[..., int], output: str, *arguments: object) -> None:
    """End with what a function returns, and print to a file."""
    opened = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(opened, stream)
    sys.exit(function(*arguments))


def apart(backend: str, function: Callable[..., T], *arguments: object) -> T:
    """Return what a function returns in a process that has imported a framework, and may fork from there."""
    receiver, sender = SERVER.Pipe(duplex=False)
    process = SERVER.Process(target=_call, args=(sender, backend, function, arguments))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    finally:
        process.join()


def _call(sender: object, backend: str, function: Callable[..., object], arguments: tuple[object, ...]) -> None:
    importlib.import_module(WARM[backend])
    sender.send(function(*arguments))


def keep_steps() -> None:
    """Make every step that this process and those forked from it build from the same plan one: building takes long.

    Only for PyTorch: what TensorFlow has run cannot be forked.
    """
    from runtime import api

    build, built = api.build, {}

    def once(plan: object, **options: object) -> object:
        key = (repr(plan.spec), repr(plan.program), repr(plan.pace), options["weights"])
        if key not in built:
            built[key] = build(plan, **options)
        return built[key]

    api.build = once


def _run(arguments: list[str], folder: str, output: str, before: Before) -> None:
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
