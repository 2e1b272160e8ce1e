"""Problems at run time: one diagnostic, raised as the error that every command prints alike."""

from __future__ import annotations

import os
import sysconfig
import traceback
import warnings
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import TYPE_CHECKING

from graphspec.diagnostics import Diagnostic, Span, SpecError

if TYPE_CHECKING:
    from graphspec.declare.graph import GraphSpec


class StepError(SpecError):
    """An error of a step, at its place in the spec. ``begun``: the step had already changed weights or other state.

    >>> from compiler import compile_step
    >>> from graphspec import load
    >>> from runtime import StepError, build
    >>> step = build(compile_step(load("examples/simultaneous-gan/simultaneous-gan.yaml")), device="cpu")
    >>> try:
    ...     step({"picture": 0})
    ... except StepError as error:
    ...     error.diagnostics[0].code, error.begun
    ('GS209', False)
    """

    def __init__(self, diagnostics: Iterable[Diagnostic], texts: Mapping[str, str], *, begun: bool = False) -> None:
        super().__init__(diagnostics, texts)
        self.begun = begun


NO_TEXTS: Mapping[str, str] = MappingProxyType({})


def problem(
    code: str,
    message: str,
    *,
    span: Span | None = None,
    label: str = "",
    notes: tuple[str, ...] = (),
    help: str = "",
    texts: Mapping[str, str] = NO_TEXTS,
) -> SpecError:
    """Return the error of one diagnostic; ``texts`` are the sources its span points into."""
    found = Diagnostic(code=code, message=message, span=span, label=label, notes=notes, help=help)
    return SpecError((found,), texts)


def refuse(problems: Iterable[Diagnostic], spec: GraphSpec) -> None:
    """Raise SpecError with some problems, where there are any."""
    found = tuple(problems)
    if found:
        raise SpecError(found, spec.texts())


@contextmanager
def quiet() -> Generator[None]:
    """Keep warnings and logs away from the terminal: failures inside are reported by diagnostics."""
    import logging

    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


_PROJECT = Path(__file__).resolve().parent.parent
_OURS = tuple(str(_PROJECT / layer) + os.sep for layer in ("graphspec", "compiler", "runtime"))
_SITE = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib")})
_LIBRARIES = ("torch", "numpy", "tensorflow", "keras", "safetensors", "typer", "rich")
_FOREIGN = tuple(str(Path(site) / library) + os.sep for site in _SITE for library in _LIBRARIES)
_STANDARD = sysconfig.get_path("stdlib") + os.sep


def user_frames(error: BaseException) -> tuple[str, ...]:
    """Return the frames of an error that belong to the user, outermost first: ``models.py:12 in forward: x = f(x)``."""
    frames = traceback.extract_tb(error.__traceback__)
    return tuple(_show(frame) for frame in frames if _is_users(frame.filename))


def show_frames(frames: Iterable[tuple[FrameType, int]]) -> tuple[str, ...]:
    """Return those of some running frames that belong to the user, each with its line number, in one line each."""
    extracted = traceback.StackSummary.extract(frames)
    return tuple(_show(frame) for frame in extracted if _is_users(frame.filename))


def raised_in(error: BaseException) -> tuple[str, ...]:
    """Return a note with the user's frames of an error; none where it passed through no code of the user's."""
    frames = user_frames(error)
    return ("\n".join(("raised in:", *(f"  {frame}" for frame in frames))),) if frames else ()


def raised_at(lines: Iterable[tuple[str, int, str]]) -> tuple[str, ...]:
    """Return a note with those of some lines, each (file, number, function), that belong to the user; none: nothing."""
    summaries = [traceback.FrameSummary(*line) for line in lines]
    frames = [_show(frame) for frame in summaries if _is_users(frame.filename)]
    return ("\n".join(("raised in:", *(f"  {frame}" for frame in frames))),) if frames else ()


def _is_users(file: str) -> bool:
    """Return whether a file is the user's: not generated, not ours, not a framework's, not the standard library's."""
    if file.startswith(("<", *_OURS, *_FOREIGN)):
        return False
    return not file.startswith(_STANDARD) or file.startswith(_SITE)


def _show(frame: traceback.FrameSummary) -> str:
    """Return one frame in one line, with the path as short as it can be from here."""
    line = f": {frame.line}" if frame.line else ""
    return f"{short_path(frame.filename)}:{frame.lineno} in {frame.name}{line}"


def short_path(file: str) -> str:
    """Return a path relative to the working directory where it is below it, else unchanged."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def system_reason(error: OSError) -> str:
    """Return why the system refused something, to be part of a sentence: ``no space left on device``."""
    return (error.strerror or str(error)).lower()


def describe(error: BaseException) -> str:
    """Return an error's type and the first line of its text: ``ValueError: bad size``."""
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__
