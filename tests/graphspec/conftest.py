"""A small spec to vary, and a way to write where a diagnostic is expected: between « and »."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from graphspec import Diagnostic, SpecError, load

HEAD = """graphspec: 1
name: small
inputs:
  x: {shape: [batch, 8]}
  y: {shape: [batch], dtype: int64}
models:
  net: {layers: [{linear: 16}, relu, {linear: 4}], optimizer: adam}
  other: {class: zoo.a:B, optimizer: {name: sgd, lr: 0.1}}
"""
OPS = """ops:
  out: {forward: net, inputs: x}
  err: {loss: cross_entropy, inputs: [out, y]}
  fit: {update: net, loss: err}
"""


def write(*, models: str = "", ops: str = "", more: str = "") -> str:
    """Return the small spec with lines added to its models and ops, and sections added to its end."""

    def indent(lines: str) -> str:
        return "".join(f"  {line}\n" for line in lines.strip().splitlines())

    return HEAD + indent(models) + OPS + indent(ops) + more


@dataclass(frozen=True, kw_only=True)
class Found:
    """The diagnostics of a marked text, and the place of each mark as (line, first column, end column)."""

    diagnostics: tuple[Diagnostic, ...]
    marks: tuple[tuple[int, int, int], ...]

    @property
    def codes(self) -> tuple[str, ...]:
        """Return the code of every diagnostic in order."""
        return tuple(diagnostic.code for diagnostic in self.diagnostics)

    @property
    def places(self) -> tuple[tuple[int, int, int], ...]:
        """Return the place of every diagnostic in order."""
        spans = [diagnostic.span for diagnostic in self.diagnostics]
        return tuple((span.line, span.column, span.end_column) for span in spans if span is not None)


def find_diagnostics(marked: str) -> Found:
    """Load a text without its marks and return what is wrong with it."""
    marks = []
    for number, line in enumerate(marked.splitlines(), start=1):
        parts = line.replace("»", "«").split("«")
        for index in range(1, len(parts), 2):
            start = sum(len(part) for part in parts[:index]) + 1
            marks.append((number, start, start + len(parts[index])))
    try:
        load(marked.replace("«", "").replace("»", ""))
    except SpecError as error:
        return Found(diagnostics=error.diagnostics, marks=tuple(marks))
    return Found(diagnostics=(), marks=tuple(marks))


@pytest.fixture
def small() -> Callable[..., str]:
    """Return the function that writes the small spec."""
    return write


@pytest.fixture
def find() -> Callable[[str], Found]:
    """Return the function that finds the diagnostics of a marked text."""
    return find_diagnostics
