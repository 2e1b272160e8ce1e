"""Diagnostics: what is wrong in a document, where, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from graphspec.excerpts import Style, draw_excerpt, escape
from graphspec.limits import LONGEST_MESSAGE, MOST_PROBLEMS

Severity: TypeAlias = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A part of a file. Lines and columns count from 1, columns in characters; the end column is exclusive."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    @property
    def place(self) -> str:
        """Return the start as ``gan.yaml:21:12``."""
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One problem: its code, what was found and expected, where, and the remedy.

    ``label`` stands beside the caret, ``notes`` and ``help`` below the excerpt.
    """

    code: str
    message: str
    span: Span | None = None
    severity: Severity = "error"
    label: str = ""
    notes: tuple[str, ...] = ()
    help: str = ""
    is_pending: bool = False
    """What is not known may be known where a run starts: a plan can be made without it."""

    def __post_init__(self) -> None:
        """Cut what a document has made too long to be read."""
        for name in ("message", "label", "help"):
            object.__setattr__(self, name, _cut(getattr(self, name)))
        object.__setattr__(self, "notes", tuple(map(_cut, self.notes[:MOST_PROBLEMS])))


def _cut(text: str) -> str:
    """Return a text, of a long one beginning and end: the reason often stands last."""
    end = LONGEST_MESSAGE // 4
    return text if len(text) <= LONGEST_MESSAGE else f"{text[: LONGEST_MESSAGE - end - 1]}…{text[-end:]}"


class SpecError(Exception):
    """Tell every problem of a document at once; printing it shows each with its place in the source."""

    diagnostics: tuple[Diagnostic, ...]
    texts: Mapping[str, str]

    def __init__(self, diagnostics: Iterable[Diagnostic], texts: Mapping[str, str]) -> None:
        self.diagnostics = sort_diagnostics(diagnostics)
        self.texts = texts
        super().__init__(self.diagnostics, texts)

    def __str__(self) -> str:
        """Return all diagnostics as a user reads them."""
        return render(self.diagnostics, self.texts)


def sort_diagnostics(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Return diagnostics in the order of their places, those without a place first."""
    return tuple(sorted(diagnostics, key=_order))


def render(diagnostics: Iterable[Diagnostic], texts: Mapping[str, str], *, color: bool = False) -> str:
    """Return diagnostics as text, each with an excerpt of its source, and a line that counts them.

    Of more than a hundred the first are shown, errors before warnings.

    ``texts`` are the sources by file name; a diagnostic of a file that is not among them is shown without excerpt.
    """
    ordered = sort_diagnostics(diagnostics)
    style = Style(color=color)
    lines = {file: _split_lines(text) for file, text in texts.items()}
    blocks = [_render_one(diagnostic, lines, style) for diagnostic in _choose(ordered)]
    more = len(ordered) - len(blocks)
    rest, prefix = ([f"and {more:,} or more of the kind"], "at least ") if more else ([], "")
    return "\n\n".join([*blocks, *rest, prefix + _summary(ordered)])


def _choose(ordered: tuple[Diagnostic, ...]) -> tuple[Diagnostic, ...]:
    """Return the diagnostics that are shown: all, or the first of too many, errors before warnings."""
    if len(ordered) <= MOST_PROBLEMS:
        return ordered
    chosen = sorted(ordered, key=lambda diagnostic: diagnostic.severity != "error")[:MOST_PROBLEMS]
    return sort_diagnostics(chosen)


def _order(diagnostic: Diagnostic) -> tuple[str, int, int, str, str]:
    span = diagnostic.span
    file, line, column = ("", 0, 0) if span is None else (span.file, span.line, span.column)
    return file, line, column, diagnostic.code, diagnostic.message


def _split_lines(text: str) -> list[str]:
    """Split at the breaks editors know; str.splitlines knows more and would shift the numbers."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _render_one(diagnostic: Diagnostic, lines: Mapping[str, list[str]], style: Style) -> str:
    span = diagnostic.span
    gutter = " " * (1 if span is None else len(str(span.line)))
    head = style.paint(diagnostic.severity, f"{diagnostic.severity}[{diagnostic.code}]")
    parts = [head + style.paint("strong", f": {escape(diagnostic.message)}")]
    if span is not None:
        parts.append(style.paint("frame", f"{gutter}--> ") + escape(span.place))
        parts.extend(_draw_span(diagnostic, span, lines, style))
    parts.extend(_remark("note", note, gutter, style) for note in diagnostic.notes)
    parts.append(_remark("help", _help(diagnostic), gutter, style))
    return "\n".join(parts)


def _draw_span(diagnostic: Diagnostic, span: Span, lines: Mapping[str, list[str]], style: Style) -> tuple[str, ...]:
    """Draw the first line of a span, which ends with that line where it goes on."""
    source = lines.get(span.file, [])
    if not 1 <= span.line <= len(source):
        return ()
    line = source[span.line - 1]
    end = span.end_column if span.end_line == span.line else len(line) + 1
    return draw_excerpt(
        line, span.line, (span.column - 1, end - 1), style=style, severity=diagnostic.severity, label=diagnostic.label
    )


def _remark(kind: str, text: str, gutter: str, style: Style) -> str:
    """Draw a note; the lines of a longer one stand below each other."""
    indent = "\n" + " " * (len(gutter) + len(kind) + 5)
    body = indent.join(escape(line) for line in text.split("\n"))
    return style.paint("frame", f"{gutter} = ") + style.paint("strong", f"{kind}: ") + body


def _help(diagnostic: Diagnostic) -> str:
    page = f"see docs/errors/{diagnostic.code}.md"
    return f"{diagnostic.help}; {page}" if diagnostic.help else page


def _summary(diagnostics: tuple[Diagnostic, ...]) -> str:
    found = {kind: sum(each.severity == kind for each in diagnostics) for kind in ("error", "warning", "note")}
    notes = f", {_count(found['note'], 'note')}" if found["note"] else ""
    return f"{_count(found['error'], 'error')}, {_count(found['warning'], 'warning')}{notes}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"
