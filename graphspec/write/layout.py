"""The layout of a document as YAML: what is on a line, between brackets or below, and how scalars are spelled."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import TypeAlias

from msgspec import Struct

from graphspec.read.interpolation import spell as spell_constant

Tree: TypeAlias = None | bool | int | float | str | list["Tree"] | dict[str, "Tree"]
Path: TypeAlias = tuple[str | int, ...]


class Word(str):
    """A text that is written as it is, without quotes: a duration, a moment, or a scalar as its author spelled it."""

    __slots__ = ()


class Block(str):
    """A text over several lines: ``|`` or ``>`` in the first, the lines below it without their indentation."""

    __slots__ = ()


class Note(Struct, frozen=True, kw_only=True):
    """Comments on a part of a document: on the lines before it, on its own line, and on the lines below it.

    An empty line among them separates it from what is before.
    """

    before: tuple[str, ...] = ()
    after: str = ""
    below: tuple[str, ...] = ()


_PLAIN = re.compile(
    r"(?:\.{0,2}/)?[A-Za-z_][A-Za-z0-9_./%+-]*(?::[A-Za-z0-9_./%+-]+)*(?: [./%+-]*[A-Za-z0-9_][A-Za-z0-9_./%+-]*)*"
)
"""A text without punctuation that stands alone, as operators of an expression do."""
_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"))
"""What some version of YAML, or some reader, takes for more than a text."""

# libyaml refuses some of these as they are, and the others change the direction of a text or are not seen; JSON's
# escapes do not cover them.
_UNPRINTABLE = re.compile(
    "[\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff]"
)


def spell_scalar(value: None | bool | int | float | str) -> str:
    """Return a scalar that YAML 1.2 reads back as the same value; floats have the fewest digits that do so."""
    if isinstance(value, str) and not isinstance(value, Word) and not is_plain(value):
        return quote(value)
    return spell_constant(value)


def is_plain(text: str) -> bool:
    """Return whether a text needs no quotes, in a flow collection either."""
    return _PLAIN.fullmatch(text) is not None and text.casefold() not in _WORDS


def quote(text: str) -> str:
    """Return a text between double quotes."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found.group()):04x}", json.dumps(text, ensure_ascii=False))


WIDTH = 120
OPENED = frozenset(("inputs", "state", "models", "ops", "data"))
"""Sections whose parts are always on lines of their own."""

_INDENT = "  "
_BREAK = re.compile(r"(?<=\S) (?=\S)")
_NO_NOTES: Mapping[Path, Note] = {}


def lay_out(
    document: Mapping[str, Tree], notes: Mapping[Path, Note] = _NO_NOTES, bracketed: Collection[Path] = ()
) -> str:
    """Return a document as YAML, with the comments on its parts; ``bracketed``: what its author wrote between brackets.

    Every op, model, input and data source begins on a line of its own, unless its section is bracketed. What fits on
    one line is written there, between brackets. What does not, or has comments in it, is opened one level: each of its
    parts is on a line of its own, or opened in turn; what is bracketed, the fields of an op, and lists of names and
    numbers continue in the next line instead.
    """
    # An empty line alone is no comment.
    said = [path for path, note in notes.items() if note.after or note.below or any(note.before)]
    inner = {path[:length] for path in said for length in range(len(path))}
    kept = frozenset(bracketed).difference(inner)
    return "\n".join(_Writer(notes=notes, opened=inner, bracketed=kept).write_document(document)) + "\n"


class _Writer(Struct, frozen=True, kw_only=True):
    """Write the parts of a document, each known by its path."""

    notes: Mapping[Path, Note]
    opened: set[Path] = set()
    """What has comments on its parts."""
    bracketed: frozenset[Path] = frozenset()
    """What stays between brackets, over several lines if need be."""

    def write_document(self, document: Mapping[str, Tree]) -> Iterator[str]:
        """Yield the lines of a document."""
        for key, value in document.items():
            if key not in OPENED or not isinstance(value, dict) or not value or (key,) in self.bracketed:
                yield from self._write_entry(key, value, "", (key,))
                continue
            entries = self._write_entries(value, _INDENT, (key,))
            yield from self._annotate([f"{key}:", *entries], "", (key,), is_open=True)

    def _annotate(self, lines: list[str], indent: str, path: Path, *, is_open: bool) -> Iterator[str]:
        """Yield the lines of a part with its comments; one on its own line is on the first, where others are below."""
        note = self.notes.get(path)
        if note is None:
            yield from lines
            return
        yield from (f"{indent}{text}" if text else "" for text in note.before)
        if note.after:
            at = 0 if is_open else -1
            lines[at] = f"{lines[at]}  {note.after}"
        yield from lines
        yield from (f"{indent}{text}" if text else "" for text in note.below)

    def _write_entries(self, entries: Mapping[str, Tree], indent: str, path: Path) -> Iterator[str]:
        for key, value in entries.items():
            yield from self._write_entry(key, value, indent, (*path, key))

    def _write_entry(self, key: str, value: Tree, indent: str, path: Path) -> Iterator[str]:
        """Yield the lines of a key and its value."""
        head = f"{indent}{spell_scalar(key)}:"
        lines = list(self._write(head, value, indent + _INDENT, path))
        yield from self._annotate(lines, indent, path, is_open=lines[0] == head or isinstance(value, Block))

    def _write(self, head: str, value: Tree, indent: str, path: Path) -> Iterator[str]:
        """Yield the lines of a value after ``head``; lines after the first are indented."""
        is_open = path in self.opened or _is_block(value)
        if not is_open and len(head) + 1 + len(flow := _flow(value)) <= WIDTH:
            yield f"{head} {flow}"
            return
        match value:
            case dict() | list() if not is_open and self._is_filled(value, indent, path):
                start, end = "{}" if isinstance(value, dict) else "[]"
                yield from _fill(f"{head} {start}", _list_parts(value), indent, end=end)
            case dict():
                yield head
                yield from self._write_entries(value, indent, path)
            case list():
                yield head
                for number, item in enumerate(value):
                    place = (*path, number)
                    is_long = place in self.opened or _is_block(item) or len(indent) + 2 + len(_flow(item)) > WIDTH
                    is_long = is_long and not self._is_filled(item, indent + _INDENT, place)
                    if isinstance(item, dict) and item and is_long:
                        lines = list(self._write_entries(item, indent + _INDENT, place))
                        # A mapping begins on the line of the dash; a comment before its first part is before the item.
                        lines[0] = f"{indent}- {lines[0].removeprefix(indent + _INDENT)}"
                    else:
                        lines = list(self._write(f"{indent}-", item, indent + _INDENT, place))
                    is_open = is_long and isinstance(item, dict | list | Block)
                    yield from self._annotate(lines, indent, place, is_open=is_open)
            case Block():
                first, *rest = value.split("\n")
                yield f"{head} {first}"
                yield from (f"{indent}{line}" if line else "" for line in rest)
            case str() if not isinstance(value, Word):
                # A line break between quotes is read as a space.
                yield from _fill(f"{head} ", _BREAK.split(quote(value)), indent)
            case _:
                yield f"{head} {_flow(value)}"

    def _is_filled(self, value: Tree, indent: str, path: Path) -> bool:
        """Return whether a long value stays between brackets, unless one of its parts is long itself.

        The fields of an op do, and lists of names and numbers, however they are written.
        """
        if not isinstance(value, dict | list) or not value or path in self.opened or _is_block(value):
            return False
        if isinstance(value, list) and not any(isinstance(item, dict | list) for item in value):
            return True
        is_op = isinstance(value, dict) and path[0] == "ops" and len(path) == 2
        longest = max(map(len, _list_parts(value))) + len(indent)
        return (is_op or path in self.bracketed) and longest <= WIDTH


def _is_block(value: Tree) -> bool:
    """Return whether a value has a text in it that takes several lines."""
    match value:
        case Block():
            return True
        case dict():
            return any(map(_is_block, value.values()))
        case list():
            return any(map(_is_block, value))
        case _:
            return False


def _list_parts(value: dict[str, Tree] | list[Tree]) -> list[str]:
    """Return what is between the brackets of a value, part by part."""
    if isinstance(value, list):
        return [f"{_flow(item)}," for item in value]
    return [f"{spell_scalar(key)}: {_flow(item)}," for key, item in value.items()]


def _fill(head: str, parts: list[str], indent: str, *, end: str = "") -> Iterator[str]:
    """Yield lines filled with parts, as many as fit on each; the last part loses its comma to the end."""
    last = parts[-1].removesuffix(",") if end else parts[-1]
    line, is_fresh = head, True
    for part in [*parts[:-1], f"{last}{end}"]:
        if not is_fresh and len(line) + 1 + len(part) > WIDTH:
            yield line
            line, is_fresh = indent, True
        line = f"{line}{part}" if is_fresh else f"{line} {part}"
        is_fresh = False
    yield line


def _flow(value: Tree) -> str:
    """Return a value on one line."""
    match value:
        case dict():
            return f"{{{', '.join(f'{spell_scalar(key)}: {_flow(item)}' for key, item in value.items())}}}"
        case list():
            return f"[{', '.join(_flow(item) for item in value)}]"
        case _:
            return spell_scalar(value)
