"""Diagnostics: what is wrong in a document, where, and what to do about it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from graphspec.limits import LONGEST_MESSAGE, MOST_PROBLEMS

_WIDEST = 160
_TAB = "    "
_ELLIPSIS = "…"
_CONTROLS = ("Cc", "Cf", "Cs", "Zl", "Zp")
_COLORS = {"error": "1;31", "warning": "1;33", "note": "1;36", "strong": "1", "frame": "1;34"}


class Style(Struct, frozen=True, kw_only=True):
    """How parts of a rendering are painted: in ANSI colours, or not at all."""

    color: bool

    def paint(self, role: str, text: str) -> str:
        """Return a text in the colour of its role."""
        return f"\x1b[{_COLORS[role]}m{text}\x1b[0m" if self.color and text else text


def escape(text: str) -> str:
    """Return a text with tabs as spaces and control, format and surrogate characters spelled out."""
    return text if text.isascii() and text.isprintable() else "".join(map(_draw_character, text))


def draw_excerpt(
    line: str, number: int, columns: tuple[int, int], *, style: Style, severity: str, label: str
) -> tuple[str, ...]:
    """Return three lines: a frame, the source line, and carets below its columns (from 0, end exclusive)."""
    gutter = " " * len(str(number))
    first = min(max(columns[0], 0), len(line))
    last = min(max(columns[1], first), len(line))
    # Of a long line what fits around the marked characters is shown.
    start, end = 0, len(line)
    if len(line) > _WIDEST or _width(line) > _WIDEST:
        marked = min(_width(line[first : min(last, first + _WIDEST)]), _WIDEST // 2)
        start = first - _fitting(line[max(0, first - _WIDEST) : first][::-1], (_WIDEST - marked) // 2)
        end = start + _fitting(line[start : start + _WIDEST], _WIDEST)
    before, after = (_ELLIPSIS if start > 0 else ""), (_ELLIPSIS if end < len(line) else "")
    shown = before + escape(line[start:end]) + after
    indent = " " * (len(before) + _width(line[start:first]))
    carets = "^" * max(1, _width(line[first : min(last, end)]))
    marks = style.paint(severity, carets + (f" {escape(label)}" if label else ""))
    return (
        style.paint("frame", f"{gutter} |"),
        style.paint("frame", f"{number} |") + (f" {shown}" if shown else ""),
        style.paint("frame", f"{gutter} | ") + indent + marks,
    )


def _fitting(text: str, width: int) -> int:
    """Return how many characters fit into a width."""
    return sum(total <= width for total in accumulate(map(_character_width, text)))


def _width(text: str) -> int:
    return len(text) if text.isascii() and text.isprintable() else sum(map(_character_width, text))


def _character_width(character: str) -> int:
    drawn = _draw_character(character)
    if drawn != character:
        return len(drawn)
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _draw_character(character: str) -> str:
    if character == "\t":
        return _TAB
    if unicodedata.category(character) not in _CONTROLS:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


Severity: TypeAlias = Literal["error", "warning", "note"]


class Span(Struct, frozen=True, kw_only=True):
    """A part of a file. Lines and columns count from 1, columns in characters; the end column is exclusive.

    >>> from graphspec import load
    >>> spec = load("examples/simultaneous-gan/simultaneous-gan.yaml")
    >>> span = spec.span("ops", "step_g", key=True)
    >>> span.place.rpartition("/")[2], span.end_column - span.column
    ('simultaneous-gan.yaml:27:3', 6)
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    via: tuple[str, ...] = ()
    """How a copy of it came to be where it counts: which op uses its block, and where; the innermost use first."""

    @property
    def place(self) -> str:
        """Return the start as ``gan.yaml:21:12``."""
        return f"{self.file}:{self.line}:{self.column}"


class Diagnostic(Struct, frozen=True, kw_only=True):
    """One problem: its code, what was found and expected, where, and the remedy.

    >>> from graphspec import SpecError, load
    >>> try:
    ...     load('{"graphspec": 1, "name": "empty", "opps": {}}', name="empty.json")
    ... except SpecError as error:
    ...     problem = error.diagnostics[0]
    >>> problem.code, problem.severity, problem.span.place, problem.label
    ('GS040', 'error', 'empty.json:1:35', "did you mean 'ops'?")
    """

    code: str
    """The name of its page in docs/errors."""
    message: str
    span: Span | None = None
    """Its place in a file; None for problems without one."""
    severity: Severity = "error"
    label: str = ""
    """A few words next to the caret of the excerpt."""
    notes: tuple[str, ...] = ()
    """Facts below the excerpt."""
    help: str = ""
    """The remedy."""
    is_pending: bool = False
    """It only lacks a length that a run knows: a plan can be made without it."""

    def __post_init__(self) -> None:
        """Cut what a document has made too long to be read."""
        for name in ("message", "label", "help"):
            force_setattr(self, name, _cut(getattr(self, name)))
        force_setattr(self, "notes", tuple(map(_cut, self.notes[:MOST_PROBLEMS])))


def _cut(text: str) -> str:
    """Return a text, of a long one beginning and end: the reason often stands last."""
    end = LONGEST_MESSAGE // 4
    return text if len(text) <= LONGEST_MESSAGE else f"{text[: LONGEST_MESSAGE - end - 1]}…{text[-end:]}"


class SpecError(Exception):
    """Every problem of a document at once; printed, each is shown with an excerpt of its source.

    >>> from graphspec import SpecError, load
    >>> try:
    ...     load('{"graphspec": 1, "name": "empty", "opps": {}}', name="empty.json")
    ... except SpecError as error:
    ...     found = error.diagnostics[0]
    >>> found.code, found.message, found.span.place
    ('GS040', "unknown key 'opps' in the document", 'empty.json:1:35')
    """

    diagnostics: tuple[Diagnostic, ...]
    """The problems, sorted by place."""
    texts: Mapping[str, str]
    """The sources by file name."""

    def __init__(self, diagnostics: Iterable[Diagnostic], texts: Mapping[str, str]) -> None:
        self.diagnostics = sort_diagnostics(diagnostics)
        self.texts = texts
        super().__init__(self.diagnostics, texts)

    def __str__(self) -> str:
        """Return all diagnostics as a user reads them."""
        return render(self.diagnostics, self.texts)


def sort_diagnostics(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Return diagnostics in the order of their places, those without a place first, and one for all uses of a block."""

    def find_place(diagnostic: Diagnostic) -> tuple[str, int, int, str, str]:
        """Return where a diagnostic is, and for those of one place what they say."""
        span = diagnostic.span
        file, line, column = ("", 0, 0) if span is None else (span.file, span.line, span.column)
        return file, line, column, diagnostic.code, diagnostic.message

    found: dict[tuple[str, str, Span | None], Diagnostic] = {}
    for each in sorted(diagnostics, key=find_place):
        span = None if each.span is None else replace(each.span, via=())
        # An op of a block is named after the use that it belongs to: 'now.fit' is 'next.fit', used elsewhere, and
        # `ops.now.fit.args` is `ops.next.fit.args`, at one place of the document.
        message = each.message
        if each.span and each.span.via:
            message = re.sub(r"`ops\.[^`]*`", "`ops`", re.sub(r"'(?:\w+\.)+(\w+)'", r"'\1'", message))
        found.setdefault((each.code, message, span), each)
    return tuple(found.values())


def render(diagnostics: Iterable[Diagnostic], texts: Mapping[str, str], *, color: bool = False) -> str:
    """Return diagnostics as text, each with an excerpt of its source, and a line with their number.

    ``texts`` are the sources by file name; a diagnostic of any other file is shown without an excerpt. Of more than a
    hundred only the first hundred are shown, errors before warnings.

    >>> from graphspec import SpecError, load, render
    >>> try:
    ...     load('{"graphspec": 1, "name": "empty", "opps": {}}')
    ... except SpecError as error:
    ...     print(render(error.diagnostics, error.texts).splitlines()[0])
    error[GS040]: unknown key 'opps' in the document
    """
    ordered = shown = sort_diagnostics(diagnostics)
    if len(ordered) > MOST_PROBLEMS:
        chosen = sorted(ordered, key=lambda diagnostic: diagnostic.severity != "error")[:MOST_PROBLEMS]
        shown = sort_diagnostics(chosen)
    style = Style(color=color)
    # Editors know these line breaks; str.splitlines knows more and would shift the numbers.
    lines = {file: text.replace("\r\n", "\n").replace("\r", "\n").split("\n") for file, text in texts.items()}
    blocks = [_render_one(diagnostic, lines, style) for diagnostic in shown]
    more = len(ordered) - len(shown)
    rest, prefix = ([f"and {more:,} or more of the kind"], "at least ") if more else ([], "")
    found = {kind: sum(each.severity == kind for each in ordered) for kind in ("error", "warning", "note")}
    counts = [
        f"{number:,} {kind}{'' if number == 1 else 's'}" for kind, number in found.items() if number or kind != "note"
    ]
    return "\n\n".join([*blocks, *rest, prefix + ", ".join(counts)])


def _render_one(diagnostic: Diagnostic, lines: Mapping[str, list[str]], style: Style) -> str:
    span = diagnostic.span
    gutter = " " * (1 if span is None else len(str(span.line)))
    head = style.paint(diagnostic.severity, f"{diagnostic.severity}[{diagnostic.code}]")
    parts = [head + style.paint("strong", f": {escape(diagnostic.message)}")]
    if span is not None:
        parts.append(style.paint("frame", f"{gutter}--> ") + escape(span.place))
        source = lines.get(span.file, [])
        if 1 <= span.line <= len(source):
            line = source[span.line - 1]
            # A span of several lines is cut at the end of the first.
            end = span.end_column if span.end_line == span.line else len(line) + 1
            columns, severity, label = (span.column - 1, end - 1), diagnostic.severity, diagnostic.label
            parts.extend(draw_excerpt(line, span.line, columns, style=style, severity=severity, label=label))
    notes = (*diagnostic.notes, *(span.via if span is not None else ()))
    parts.extend(_remark("note", note, gutter, style) for note in notes)
    page = f"see docs/errors/{diagnostic.code}.md"
    parts.append(_remark("help", f"{diagnostic.help}; {page}" if diagnostic.help else page, gutter, style))
    return "\n".join(parts)


def _remark(kind: str, text: str, gutter: str, style: Style) -> str:
    """Draw a note; the lines of a longer one stand below each other."""
    indent = "\n" + " " * (len(gutter) + len(kind) + 5)
    body = indent.join(escape(line) for line in text.split("\n"))
    return style.paint("frame", f"{gutter} = ") + style.paint("strong", f"{kind}: ") + body


def require_kind(value: object, kind: type | tuple[type, ...], what: str, remedy: str) -> None:
    """Raise SpecError (GS275) where an argument is of another type; ``what`` says who takes what."""
    if not isinstance(value, kind):
        found = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
        raise SpecError([Diagnostic(code="GS275", message=f"{what}, found {found}", help=remedy)], {})


def require_name(value: object, names: tuple[str, ...], what: str, remedy: str) -> None:
    """Raise SpecError (GS275) where an argument is none of some names."""
    require_kind(value, str, what, remedy)
    if value not in names:
        raise SpecError([Diagnostic(code="GS275", message=f"{what}, found {value!r}", help=remedy)], {})
