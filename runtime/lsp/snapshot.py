"""A version of a spec's text, and what is known about it: its data, its names, and what load and compile make of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import Generic, TypeVar

from compiler import Plan, compile_step
from graphspec.diagnostics import Diagnostic, SpecError, sort_diagnostics
from graphspec.expand.includes import include_files
from graphspec.loading import STANDARD, read_spec
from graphspec.read.builder import SourceText
from graphspec.read.source import Document, read_document
from runtime.lsp.names import NOTHING, Names, find_names
from runtime.train.pace import find_declared_pace

S = TypeVar("S")
T = TypeVar("T")

_ROOT_KEY = re.compile(r"""^["']?graphspec["']?[ \t]*:""", re.MULTILINE)
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[{}\[\]]|\bgraphspec\b')
_COLON = re.compile(r"\s*:")


def is_spec(text: str) -> bool:
    """Return whether a text is that of a spec: its root has the key `graphspec`, even where the rest is broken."""
    text = text.removeprefix("\ufeff")
    if not text.lstrip().startswith("{"):
        return _ROOT_KEY.search(text) is not None
    depth = 0
    for found in _TOKEN.finditer(text):
        token = found.group()
        depth += (token in "{[") - (token in "]}")
        if depth == 1 and token.strip('"') == "graphspec" and _COLON.match(text, found.end()):
            return True
    return False


class Once(Generic[S, T]):
    """A property that is worked out once, by one thread; unlike those of `functools`, no other object waits for it."""

    def __init__(self, work: Callable[[S], T]) -> None:
        self._work = work
        self._name = work.__name__

    def __get__(self, instance: S, owner: type[S]) -> T:
        """Return its value, which stands in the object from then on."""
        values: dict[str, T] = vars(instance)
        locks: dict[str, RLock] = vars(instance).setdefault("locks", {})
        with locks.setdefault(self._name, RLock()):
            if self._name not in values:
                values[self._name] = self._work(instance)
        return values[self._name]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What load and compile make of a text: every problem, and the plan where there is one."""

    diagnostics: tuple[Diagnostic, ...]
    texts: Mapping[str, str]
    """The sources that diagnostics point into, by file name."""
    plan: Plan | None = None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A spec as it is in the editor; everything else about it is worked out when it is asked for, and once."""

    path: Path
    """Its file; of a text without one, where it would be."""
    text: str
    backend: str = "torch"
    is_saved: bool = True
    """Whether it has a file, so that others can be included."""
    opened: Mapping[Path, str]
    """The texts of other files that the editor has."""

    @property
    def file(self) -> str:
        """Return its name in messages, which is that of the file without folders."""
        return self.path.name

    @Once
    def source(self) -> SourceText:
        """Return the text, which knows where its lines start."""
        return SourceText(file=self.file, content=self.text)

    @Once
    def document(self) -> Document | None:
        """Return the data of the text and of what it includes; None where it cannot be read."""
        return self.read(self.text)

    @Once
    def names(self) -> Names:
        """Return the names that it declares and mentions, as far as it can be read."""
        return NOTHING if self.document is None else find_names(self.document)

    @Once
    def checked(self) -> CheckResult:
        """Return what `stepgraph check` finds."""
        try:
            spec = read_spec(self._include(read_document(self.text, name=self.file)))
        except SpecError as error:
            return CheckResult(diagnostics=error.diagnostics, texts=error.texts)
        try:
            pace = find_declared_pace(spec, self.path)
            plan = compile_step(spec, backend=self.backend, pace=pace, pending=True)
        except SpecError as error:
            return CheckResult(diagnostics=error.diagnostics, texts=error.texts)
        return CheckResult(diagnostics=sort_diagnostics((*plan.warnings, *plan.pending)), texts=spec.texts(), plan=plan)

    def read(self, text: str) -> Document | None:
        """Return the data of another text in its place, with what that includes as far as this is there."""
        try:
            document = read_document(text, name=self.file)
        except SpecError:
            return None
        try:
            return self._include(document)
        except SpecError:
            return document

    def locate(self, file: str) -> Path:
        """Return the path of a file by its name in messages."""
        return (self.path.parent / file).resolve()

    def _include(self, document: Document) -> Document:
        return include_files(document, self.path if self.is_saved else None, None, STANDARD, self.opened)
