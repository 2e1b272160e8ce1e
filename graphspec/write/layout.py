"""Layout: plain data as YAML that is pleasant to read.

Every op, model, input and data source begins on a line of its own. What fits on one line is written there, between
brackets. What does not is opened one level: each of its parts is on a line of its own, or opened in turn; the fields of
an op, and lists of names and numbers, go on in the next line instead.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from graphspec.write.spelling import Tree, Word

_PLAIN = re.compile(r"(?:\.{0,2}/)?[A-Za-z_][A-Za-z0-9_./%+-]*(?::[A-Za-z0-9_./%+-]+)*(?: [A-Za-z0-9_./%+-]+)*")
_WORDS = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"))
"""What some version of YAML, or some reader, takes for more than a text."""

# libyaml refuses some of these as they are, and the others change the direction of a text or are not seen; JSON's
# escapes do not cover them.
_UNPRINTABLE = re.compile(
    "[\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff]"
)


def spell_scalar(value: None | bool | int | float | str) -> str:
    """Return a scalar that YAML 1.2 reads back as the same value; floats have the fewest digits that do so."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float() if not math.isfinite(value):
            return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
        case int() | float():
            return repr(value)
        case str():
            return str(value) if isinstance(value, Word) or is_plain(value) else quote(value)


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

Scalar: TypeAlias = None | bool | int | float | str


def lay_out(document: Mapping[str, Tree]) -> str:
    """Return a document as YAML."""
    lines = [line for key, value in document.items() for line in _write_section(key, value)]
    return "\n".join(lines) + "\n"


def _write_section(key: str, value: Tree) -> Iterator[str]:
    if key not in OPENED or not isinstance(value, dict) or not value:
        yield from _write_entry(key, value, "")
        return
    yield f"{key}:"
    for name, item in value.items():
        yield from (_write_op(name, item) if key == "ops" else _write_entry(name, item, _INDENT))


def _write_op(name: str, op: Tree) -> Iterator[str]:
    """Yield the lines of an op: its fields in brackets, one after another, unless one of them is long itself."""
    parts = [f"{spell_scalar(key)}: {_flow(item)}," for key, item in op.items()] if isinstance(op, dict) else []
    if parts and max(map(len, parts)) + 2 * len(_INDENT) <= WIDTH:
        yield from _fill(f"{_INDENT}{spell_scalar(name)}: {{", parts, 2 * _INDENT, end="}")
    else:
        yield from _write_entry(name, op, _INDENT)


def _write_entries(entries: Mapping[str, Tree], indent: str) -> Iterator[str]:
    for key, value in entries.items():
        yield from _write_entry(key, value, indent)


def _write_entry(key: str, value: Tree, indent: str) -> Iterator[str]:
    """Yield the lines of a key and its value."""
    yield from _write(f"{indent}{spell_scalar(key)}:", value, indent + _INDENT)


def _write_item(value: Tree, indent: str) -> Iterator[str]:
    """Yield the lines of an item of a list; a mapping begins on the line of the dash."""
    flow = _flow(value)
    if not isinstance(value, dict) or len(indent) + 2 + len(flow) <= WIDTH:
        yield from _write(f"{indent}-", value, indent + _INDENT)
        return
    first, *rest = _write_entries(value, indent + _INDENT)
    yield f"{indent}- {first.removeprefix(indent + _INDENT)}"
    yield from rest


def _write(head: str, value: Tree, indent: str) -> Iterator[str]:
    """Yield the lines of a value after ``head``; lines after the first are indented."""
    flow = _flow(value)
    if len(head) + 1 + len(flow) <= WIDTH:
        yield f"{head} {flow}"
        return
    match value:
        case dict():
            yield head
            yield from _write_entries(value, indent)
        case list() if all(not isinstance(item, dict | list) for item in value):
            yield from _fill(f"{head} [", [f"{_flow(item)}," for item in value], indent, end="]")
        case list():
            yield head
            for item in value:
                yield from _write_item(item, indent)
        case str():
            # A line break between quotes is read as a space.
            parts = _BREAK.split(flow if flow.startswith('"') else quote(value))
            yield from _fill(f"{head} ", parts, indent)
        case _:
            yield f"{head} {flow}"


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
