"""The builder that both readers feed: plain data, and where every key and value of it stands in the text."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from functools import cached_property
from typing import Literal, NoReturn, TypeAlias

from msgspec import Struct

from graphspec.diagnostics import Diagnostic, Span, SpecError
from graphspec.limits import MOST_PROBLEMS, Limits
from graphspec.read.scalars import Scalar
from graphspec.words import describe, quote

_LINE_BREAK = re.compile(r"\r\n|\n|\r")


class SourceText(Struct, frozen=True, kw_only=True, dict=True):
    """The text of a file, without byte order mark, that knows where its lines start."""

    file: str
    content: str

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        return (0, *(match.end() for match in _LINE_BREAK.finditer(self.content)))

    def span(self, start: int, end: int) -> Span:
        """Return the place of the characters from one offset up to another."""
        starts = self._starts
        line, end_line = bisect_right(starts, start), bisect_right(starts, end)
        column, end_column = start - starts[line - 1] + 1, end - starts[end_line - 1] + 1
        return Span(file=self.file, line=line, column=column, end_line=end_line, end_column=end_column)

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a place."""
        return self._starts[line - 1] + column - 1

    @property
    def texts(self) -> Mapping[str, str]:
        """Return the text by its file name, as :func:`graphspec.diagnostics.render` takes it."""
        return {self.file: self.content}


Path: TypeAlias = tuple[str | int, ...]
"""A way through plain data: keys of mappings and indices of lists."""
Plain: TypeAlias = None | bool | int | float | str | list["Plain"] | dict[str, "Plain"]
"""What a document holds."""
Region: TypeAlias = tuple[int, int, int, int]
"""Offsets: start and end of the key (-1, -1 where there is none), start and end of the value."""
Kind: TypeAlias = Literal["mapping", "list"]

NO_KEY: tuple[int, int] = (-1, -1)
"""The region of a key where there is none."""


class Reading(Struct, frozen=True, kw_only=True):
    """What a reader makes of a text."""

    data: Plain
    regions: Mapping[Path, Region]


class _Frame:
    """A collection that is still open. ``key`` is the key that waits for its value, None where a key must come."""

    __slots__ = ("is_key", "items", "key", "key_region", "path", "start")

    def __init__(self, items: list[Plain] | dict[str, Plain], path: Path, start: int, *, is_key: bool) -> None:
        self.items = items
        self.path = path
        self.start = start
        self.is_key = is_key
        self.key: str | None = None
        self.key_region: tuple[int, int] = NO_KEY


class Builder:
    """Build plain data from a flat stream of scalars, openings and closings, without recursion.

    Problems are collected, so that reading can go on; :meth:`fail` and :meth:`finish` raise them together.
    """

    def __init__(self, text: SourceText, limits: Limits) -> None:
        self._text = text
        self._limits = limits
        self._data: Plain = None
        self._regions: dict[Path, Region] = {}
        self._stack: list[_Frame] = []
        self._nodes = 0
        self._end = 0
        self._diagnostics: list[Diagnostic] = []

    @property
    def awaits_key(self) -> bool:
        """Return whether the next node is the key of a mapping."""
        return bool(self._stack) and isinstance(self._stack[-1].items, dict) and self._stack[-1].key is None

    @property
    def innermost(self) -> int | None:
        """Return where the innermost open collection starts."""
        return self._stack[-1].start if self._stack else None

    def add(self, value: Scalar, start: int, end: int) -> None:
        """Add a scalar: a key where one must come, else a value; whole numbers are keys by their digits, as in JSON."""
        self._count(start)
        self._end = end
        frame = self._stack[-1] if self._stack else None
        if frame is None or frame.key is not None or not isinstance(frame.items, dict):
            self._attach(frame, value, start)
        elif isinstance(value, bool) or not isinstance(value, int | str):
            self._refuse_key(frame, describe(value), start, end)
        else:
            frame.key, frame.key_region = str(value), (start, end)
            if frame.key in frame.items:
                first_start, first_end, _, _ = self._regions[(*frame.path, frame.key)]
                label = f"it is first given at {self._text.span(first_start, first_end).place}"
                message = f"key {quote(frame.key)} is given twice"
                self.report("GS005", message, start, end, label=label, help="rename or remove one of them")

    def open(self, kind: Kind, start: int, end: int) -> None:
        """Open a collection that starts with the characters from ``start`` to ``end``."""
        self._count(start)
        self._end = end
        if len(self._stack) >= self._limits.depth:
            message = f"collections are nested more than {self._limits.depth} deep"
            self.fail("GS014", message, start, end, help="close a bracket before, or raise `limits`")
        is_key = self.awaits_key
        frame = self._stack[-1] if self._stack else None
        if frame is not None and is_key:
            self._refuse_key(frame, "a mapping" if kind == "mapping" else "a list", start, max(end, start + 1))
        items: list[Plain] | dict[str, Plain] = {} if kind == "mapping" else []
        path = self._attach(frame, items, start)
        self._stack.append(_Frame(items, path, start, is_key=is_key))

    def close(self, end: int | None = None) -> None:
        """Close the innermost collection, at an offset or where its last item ended."""
        frame = self._stack.pop()
        self._end = self._end if end is None else end
        key_start, key_end, start, _ = self._regions[frame.path]
        self._regions[frame.path] = (key_start, key_end, start, self._end)
        if frame.is_key and self._stack:
            self._stack[-1].key = _replacement(frame.start)

    def report(
        self, code: str, message: str, start: int, end: int, *, label: str = "", note: str = "", help: str = ""
    ) -> None:
        """Collect a problem and continue."""
        notes = (note,) if note else ()
        if len(self._diagnostics) == MOST_PROBLEMS - 1:
            notes = (*notes, f"reading stopped after {MOST_PROBLEMS} problems; there may be more")
        span = self._text.span(start, end)
        self._diagnostics.append(Diagnostic(code=code, message=message, span=span, label=label, notes=notes, help=help))
        if len(self._diagnostics) == MOST_PROBLEMS:
            raise SpecError(self._diagnostics, self._text.texts)

    def fail(
        self, code: str, message: str, start: int, end: int, *, label: str = "", note: str = "", help: str = ""
    ) -> NoReturn:
        """Raise a problem after which reading cannot continue, and those collected before."""
        self.report(code, message, start, end, label=label, note=note, help=help)
        raise SpecError(self._diagnostics, self._text.texts)

    def finish(self) -> Reading:
        """Return what was built; raise SpecError with everything collected."""
        if self._diagnostics:
            raise SpecError(self._diagnostics, self._text.texts)
        if not self._regions or self._data is None:
            help = "a spec has at least `graphspec: 1`, `name` and `ops`"
            self.fail("GS001", "the document is empty", 0, 0, help=help)
        return Reading(data=self._data, regions=self._regions)

    def _count(self, start: int) -> None:
        self._nodes += 1
        if self._nodes > self._limits.nodes:
            message = f"the document has more than {self._limits.nodes:,} keys, values and collections"
            self.fail("GS013", message, start, start, help="put data into files and name them, or raise `limits`")

    def _attach(self, frame: _Frame | None, value: Plain, start: int) -> Path:
        """Put a value where it belongs and return its path."""
        if frame is None:
            self._data = value
            self._regions[()] = (*NO_KEY, start, self._end)
            return ()
        if isinstance(frame.items, list):
            path = (*frame.path, len(frame.items))
            frame.items.append(value)
            self._regions[path] = (*NO_KEY, start, self._end)
            return path
        key = frame.key or ""
        path = (*frame.path, key)
        frame.items[key] = value
        frame.key = None
        self._regions[path] = (*frame.key_region, start, self._end)
        return path

    def _refuse_key(self, frame: _Frame, found: str, start: int, end: int) -> None:
        help = "put the key between quotes, or check the brackets: `{` and `[` start a collection"
        self.report("GS010", f"expected a string as key, found {found}", start, end, help=help)
        frame.key = _replacement(start)
        frame.key_region = (start, end)


def _replacement(start: int) -> str:
    """Return a key that no document has, to continue with after a key that is refused."""
    return f"\x00{start}"
