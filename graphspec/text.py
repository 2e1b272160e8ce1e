"""A source text and its lines: from offsets to places."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

from graphspec.diagnostics import Span

_LINE_BREAK = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceText:
    """The text of a file, without byte order mark, that knows where its lines start."""

    file: str
    content: str
    _starts: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts = (0, *(match.end() for match in _LINE_BREAK.finditer(self.content)))
        object.__setattr__(self, "_starts", starts)

    def span(self, start: int, end: int) -> Span:
        """Return the place of the characters from one offset up to another."""
        line, column = self._place(start)
        end_line, end_column = self._place(end)
        return Span(file=self.file, line=line, column=column, end_line=end_line, end_column=end_column)

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a place."""
        return self._starts[line - 1] + column - 1

    @property
    def texts(self) -> Mapping[str, str]:
        """Return the text by its file name, as :func:`graphspec.diagnostics.render` takes it."""
        return {self.file: self.content}

    def _place(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1
