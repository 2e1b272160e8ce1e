"""Printing of emitted code: statements with comments beside or above them, and where each line comes from."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from runtime.emission.layout import INDENT, WIDTH, lay_out

GAP = 2
FARTHEST_COLUMN = 84
"""Comments are aligned no farther to the right than here; beside a longer line they start right after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One statement: ``comment`` stands beside it, ``above`` as comment lines before it; the op it belongs to."""

    statement: ast.stmt
    comment: str = ""
    above: tuple[str, ...] = ()
    op: str = ""
    place: str = ""
    writes: bool = False
    """It changes what outlives the step, or a function that does is called in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A statement with a body (``with``, ``if``, ``def``); the header is a line of its own."""

    header: Line
    body: tuple[Code, ...]
    doc: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Text copied as it is (support code), a comment line, or blank lines."""

    text: str


Code: TypeAlias = "Line | Block | Source"


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """One physical line of code, its trailing comment not yet placed, and the (op, place) it belongs to."""

    text: str
    comment: str = ""
    origin: tuple[str, str] | None = None
    writes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Printed code: the text, for each 1-based line of an op the op and its place, and the lines that write."""

    text: str
    places: dict[int, tuple[str, str]] = field(default_factory=dict[int, tuple[str, str]])
    writes: frozenset[int] = frozenset()


def print_code(code: Sequence[Code]) -> Page:
    """Return the page of top-level code; comments are aligned within each top-level block."""
    lines: list[str] = []
    places: dict[int, tuple[str, str]] = {}
    writes: set[int] = set()
    for entry in code:
        for line in align(tuple(_print(entry, 0))):
            lines.append(line.text)
            if line.origin is not None:
                places[len(lines)] = line.origin
            writes.update([len(lines)] if line.writes else [])
    return Page(text="\n".join(lines) + "\n", places=places, writes=frozenset(writes))


def align(lines: Sequence[Printed]) -> Iterator[Printed]:
    """Yield the lines with their comments placed: in one column where they fit, else beside or above their line."""
    ends = [len(line.text) + GAP for line in lines if line.comment]
    column = max((end for end in ends if end <= FARTHEST_COLUMN), default=0)
    for line in lines:
        start = max(column, len(line.text) + GAP)
        if not line.comment:
            yield line
        elif start + len(line.comment) + GAP <= WIDTH:
            yield replace(line, text=f"{line.text:<{start}}# {line.comment}", comment="")
        elif len(line.text) + GAP + len(line.comment) + GAP <= WIDTH:
            yield replace(line, text=f"{line.text}  # {line.comment}", comment="")
        else:
            indent = len(line.text) - len(line.text.lstrip())
            yield from _comment_lines(line.comment, indent, line.origin)
            yield replace(line, comment="")


def _print(code: Code, indent: int) -> Iterator[Printed]:
    """Yield the physical lines of a piece of code."""
    match code:
        case Line():
            yield from _print_line(code, indent)
        case Block():
            yield from _print_line(code.header, indent)
            if code.doc:
                yield from _print_doc(code.doc, indent + INDENT)
            for entry in code.body:
                yield from _print(entry, indent + INDENT)
        case Source():
            for text in code.text.split("\n"):
                yield Printed(text=" " * indent + text if text else "")


def _print_line(line: Line, indent: int) -> Iterator[Printed]:
    """Yield the comment lines above a statement and the lines of the statement, the comment beside its first."""
    origin = (line.op, line.place) if line.op else None
    for note in line.above:
        yield from _comment_lines(note, indent, origin)
    first, *rest = lay_out(line.statement, indent)
    yield Printed(text=first, comment=plain(line.comment), origin=origin, writes=line.writes)
    for text in rest:
        yield Printed(text=text, origin=origin, writes=line.writes)


def _comment_lines(note: str, indent: int, origin: tuple[str, str] | None) -> Iterator[Printed]:
    """Yield a note as comment lines."""
    for text in textwrap.wrap(plain(note), WIDTH - indent - 2, break_on_hyphens=False):
        yield Printed(text=f"{' ' * indent}# {text}", origin=origin)


def _print_doc(doc: str, indent: int) -> Iterator[Printed]:
    """Yield a docstring, its first line beside the quotes."""
    quotes = '"' * 3
    first, *rest = textwrap.wrap(plain(doc), WIDTH - indent - 6, break_on_hyphens=False)
    yield Printed(text=f"{' ' * indent}{quotes}{first}{quotes if not rest else ''}")
    for text in rest:
        yield Printed(text=" " * indent + text)
    if rest:
        yield Printed(text=" " * indent + quotes)


def plain(text: str) -> str:
    """Return a text of one line that ends neither a comment nor a docstring: names and notes come from the spec."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(printable.replace("\\", "/").replace('"', "'").split())
