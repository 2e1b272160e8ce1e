"""Places: of the language, in characters that count from 1, and of editors, in code units that count from 0."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from lsprotocol import types

from graphspec.diagnostics import Span
from graphspec.read.builder import SourceText

_CODECS = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}


@dataclass(frozen=True, slots=True)
class Units:
    """The code units in which an editor counts columns: UTF-16 unless it agreed on another encoding."""

    encoding: str = "utf-16"

    def measure(self, text: str) -> int:
        """Return how many code units a text has."""
        codec, width = _CODECS[self.encoding]
        return len(text) if text.isascii() else len(text.encode(codec, "surrogatepass")) // width

    def offset(self, source: SourceText, position: types.Position) -> int:
        """Return the offset of an editor's position; one beyond the end of its line is at the end."""
        last = source.span(len(source.content), len(source.content)).line
        if position.line >= last:
            return len(source.content)
        start = source.offset(position.line + 1, 1)
        end = source.offset(position.line + 2, 1) if position.line + 1 < last else len(source.content)
        line = source.content[start:end].rstrip("\r\n")
        return start + bisect_right(
            range(len(line)), position.character, key=lambda index: self.measure(line[: index + 1])
        )

    def position(self, source: SourceText, line: int, column: int) -> types.Position:
        """Return an editor's position of a line and a column."""
        last = source.span(len(source.content), len(source.content)).line
        start = source.offset(min(line, last), 1)
        return types.Position(line=line - 1, character=self.measure(source.content[start : start + column - 1]))

    def range(self, source: SourceText, span: Span) -> types.Range:
        """Return an editor's range of a span."""
        return types.Range(
            start=self.position(source, span.line, span.column),
            end=self.position(source, span.end_line, span.end_column),
        )
