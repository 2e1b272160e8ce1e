"""Output of commands: results on standard output, problems on standard error, coloured on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from graphspec.diagnostics import Diagnostic, SpecError, render

PROBLEM, USAGE, INTERRUPTED = 1, 2, 130
"""Exit codes: a problem in spec, data or run; wrong usage; the user stopped it."""


def has_color(stream: TextIO) -> bool:
    """Return whether a stream shows colours: a terminal does, unless NO_COLOR is set or it is a dumb one.

    The variables are those of https://no-color.org and https://force-color.org.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def has_moving_lines(stream: TextIO) -> bool:
    """Return whether a printed line can be overwritten: on a terminal that is not a dumb one."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def say(text: str) -> None:
    """Print a result."""
    print(text)


def complain(text: str) -> None:
    """Print a line about a problem."""
    print(text, file=sys.stderr)


def show_error(error: SpecError) -> None:
    """Print every diagnostic of an error."""
    show(error.diagnostics, error.texts)


def show(diagnostics: Sequence[Diagnostic], texts: Mapping[str, str]) -> None:
    """Print diagnostics, if there are any."""
    if diagnostics:
        complain(render(diagnostics, texts, color=has_color(sys.stderr)))


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 warning``, ``2 warnings``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def strong(text: str, stream: TextIO) -> str:
    """Return a text that stands out where the stream shows colours."""
    return f"\x1b[1m{text}\x1b[0m" if has_color(stream) else text
