"""Lines of the user's: where a frame is that belongs neither to PyTorch, nor to Python's library, nor to the audit."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

import torch

from runtime.audit.trace import NOWHERE, Place, Site

_OURS = Path(__file__).resolve().parents[3]
_FOREIGN = (
    os.path.dirname(torch.__file__) + os.sep,
    *(f"{_OURS / each}{os.sep}" for each in ("audit", "backends", "cli")),
    str(_OURS.parent / "stepgraph") + os.sep,
)
_WRAPPERS = ("inner", "wrapper", "decorate_context", "_no_grad_wrapper", "_fn")
"""Functions that stand around others and say nothing about them."""
_HELD_BY_FRAME = 3
"""References to the dictionary of a frame that no one else has: the frame's, a variable's, an argument's."""
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_RUNNER = str(_OURS / "audit" / "session.py")
_LIBRARY = sysconfig.get_paths()["stdlib"] + os.sep


@functools.cache
def is_foreign(code: CodeType) -> bool:
    """Return whether code is PyTorch's, Python's, or the audit's own."""
    name = code.co_filename
    if name.startswith("<"):
        return not name.startswith(("<ipython", "<doctest"))
    path = os.path.abspath(name)
    return path.startswith(_FOREIGN) or (path.startswith(_LIBRARY) and "site-packages" not in path)


def is_recorder(file: str) -> bool:
    """Return whether a file is one of the recorder's."""
    return os.path.abspath(file).startswith(_HERE)


def is_runner(code: CodeType) -> bool:
    """Return whether code is that which runs a script: no caller of it is the program's."""
    return code.co_name == "_run_main" and code.co_filename == _RUNNER


def frames() -> Iterator[FrameType]:
    """Yield the user's frames, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not is_foreign(frame.f_code):
            yield frame
        frame = frame.f_back


def variables_of(frame: FrameType) -> dict[str, object]:
    """Return the local variables of a frame.

    Up to Python 3.12 a function's frame keeps the dictionary that it hands out, and with it what the variables held
    then: the loss of an earlier step, and its graph. It is emptied, unless the program holds it by `locals()`.
    """
    found = frame.f_locals
    variables = dict(found)
    is_copy = bool(frame.f_code.co_flags & inspect.CO_OPTIMIZED) and isinstance(found, dict)
    if is_copy and sys.getrefcount(found) == _HELD_BY_FRAME:
        found.clear()
    return variables


def find_place() -> Place:
    """Return the innermost line of the user's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_foreign(frame.f_code):
        frame = frame.f_back
    return NOWHERE if frame is None else Place(frame.f_code.co_filename, frame.f_lineno)


def find_site() -> Site:
    """Return the calls of the user's that have led to what runs."""
    return tuple((each.f_code.co_filename, each.f_code.co_firstlineno, each.f_lasti) for each in frames())


def find_function() -> str:
    """Return the name of the library's function that the user's innermost line called, empty where there is none."""
    frame: FrameType | None = sys._getframe(1)
    name = ""
    while frame is not None and is_foreign(frame.f_code):
        if not frame.f_code.co_filename.startswith(_FOREIGN[1:]) and frame.f_code.co_name not in _WRAPPERS:
            name = frame.f_code.co_name
        frame = frame.f_back
    return name


def find_argument(function: str, name: str) -> object:
    """Return an argument of the library's function of this name that is running; None where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_foreign(frame.f_code):
        if frame.f_code.co_name == function and name in (found := variables_of(frame)):
            return found[name]
        frame = frame.f_back
    return None


def is_called_from(*names: str) -> bool:
    """Return whether a function of the library of one of these names is running, below the user's innermost line."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_foreign(frame.f_code):
        if frame.f_code.co_name in names:
            return True
        frame = frame.f_back
    return False
