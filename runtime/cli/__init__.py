"""The command ``stepgraph``: all its commands, and their exit codes."""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from graphspec.diagnostics import SpecError
from runtime.cli.commands import SETTINGS, Commands, add_commands
from runtime.interrupt import Interrupted
from runtime.processes import Silent
from runtime.terminal import INTERRUPTED, PROBLEM, complain, show_error

_DEBUG = "STEPGRAPH_DEBUG"
_EPILOG = "Exit codes: 0 done, 1 a problem in spec, data or run, 2 wrong usage, 130 interrupted."


def _show_version(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = version("stepgraph")
    except PackageNotFoundError:
        found = "(not installed: run from its source)"
    typer.echo(f"stepgraph {found}")
    raise typer.Exit


def _prepare(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of internal errors.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Compile training steps: declare losses and updates, get a correct order of them with reasons, and run it."""
    if debug:
        os.environ[_DEBUG] = "1"


def make_app() -> typer.Typer:
    """Return the application with every command."""
    app = typer.Typer(
        name="stepgraph",
        cls=Commands,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings=SETTINGS,
        epilog=_EPILOG,
    )
    app.callback()(_prepare)
    add_commands(app)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line (default: the process's own) and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a name that the terminal cannot show must not make a command fail
    sys.exit(execute(sys.argv[1:] if arguments is None else arguments))


def execute(arguments: Sequence[str]) -> int:
    """Run a command line of `stepgraph` in this process; return its exit code. Errors are printed, never raised.

    The codes are 0 done, 1 a problem in spec, data or run, 2 wrong usage, 130 interrupted.

    >>> from runtime.cli import execute
    >>> execute(["check", "examples/simultaneous-gan/simultaneous-gan.yaml"])  # doctest: +ELLIPSIS
    examples/simultaneous-gan/simultaneous-gan.yaml: ...
    0
    """
    try:
        code = _invoke(arguments)
        sys.stdout.flush()
    except SpecError as error:
        show_error(error)
        return PROBLEM
    except Silent as end:
        return end.code
    except (Interrupted, KeyboardInterrupt) as stop:
        complain(str(stop) if isinstance(stop, Interrupted) else "interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of the output is gone, and the flush at exit would report that again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PROBLEM
    except Exception as error:
        is_debugging = os.environ.get(_DEBUG, "0") not in ("", "0")
        if is_debugging:
            traceback.print_exception(error)
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.lineno}"
        complain(f"stepgraph: internal error, please report it: {type(error).__name__}: {error} ({place})")
        if not is_debugging:
            complain("`stepgraph --debug ...` shows where it comes from")
        return PROBLEM
    return code


def _invoke(arguments: Sequence[str]) -> int:
    try:
        make_app()(list(arguments), prog_name="stepgraph")
    except SystemExit as end:
        if end.code == INTERRUPTED:
            raise KeyboardInterrupt from end  # typer turns the one into the other silently
        return end.code if isinstance(end.code, int) else 0
    return 0
