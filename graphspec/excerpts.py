"""Excerpts: one source line drawn with a caret below it, safe for a terminal whatever the line holds."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from itertools import accumulate

_WIDEST = 160
_TAB = "    "
_ELLIPSIS = "…"
_CONTROLS = ("Cc", "Cf", "Cs", "Zl", "Zp")
_COLORS = {"error": "1;31", "warning": "1;33", "note": "1;36", "strong": "1", "frame": "1;34"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
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
    shown, start, width = _clip(line, columns)
    marks = style.paint(severity, "^" * width + (f" {escape(label)}" if label else ""))
    return (
        style.paint("frame", f"{gutter} |"),
        style.paint("frame", f"{number} |") + (f" {shown}" if shown else ""),
        style.paint("frame", f"{gutter} | ") + " " * start + marks,
    )


def _clip(line: str, columns: tuple[int, int]) -> tuple[str, int, int]:
    """Return what is shown of a line, and where on the screen the carets start and how many there are."""
    first = min(max(columns[0], 0), len(line))
    last = min(max(columns[1], first), len(line))
    start, end = _window(line, first, last)
    before, after = (_ELLIPSIS if start > 0 else ""), (_ELLIPSIS if end < len(line) else "")
    shown = before + escape(line[start:end]) + after
    left = len(before) + _width(line[start:first])
    return shown, left, max(1, _width(line[first : min(last, end)]))


def _window(line: str, first: int, last: int) -> tuple[int, int]:
    """Return the part of a line that is shown: all of it, or what fits around the marked characters."""
    if len(line) <= _WIDEST and _width(line) <= _WIDEST:
        return 0, len(line)
    marked = min(_width(line[first : min(last, first + _WIDEST)]), _WIDEST // 2)
    start = first - _fitting(line[max(0, first - _WIDEST) : first][::-1], (_WIDEST - marked) // 2)
    return start, start + _fitting(line[start : start + _WIDEST], _WIDEST)


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
