"""Where names are declared and mentioned: definition, references, rename, and the outline."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from graphspec.declare.fields import is_name
from graphspec.diagnostics import Span
from graphspec.read.expressions import PI
from runtime.lsp.cursor import MARK, find_cursor
from runtime.lsp.names import Declared, Mention, Symbol
from runtime.lsp.snapshot import Snapshot

ROLES = ("train", "test", "eval")
"""Names of data that mean something."""
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SECTIONS = ("vars", "inputs", "state", "models", "blocks", "ops", "data")


class RenameError(Exception):
    """A name that cannot be changed, or not to this; the text says why."""


def find_definition(snapshot: Snapshot, offset: int) -> Span | None:
    """Return where the name at an offset is declared; of the path of an included file, its beginning."""
    mention = find_mention(snapshot, offset)
    declared = None if mention is None else snapshot.names.declared.get(mention.symbol)
    if declared is not None:
        return declared.span
    cursor = find_cursor(snapshot, offset)
    if cursor is None or cursor.path[:1] != ("include",):
        return None
    written = cursor.get(cursor.path)
    file = written.replace(MARK, "") if isinstance(written, str) else ""
    is_file = bool(file) and snapshot.locate(file).is_file()
    return Span(file=file, line=1, column=1, end_line=1, end_column=1) if is_file else None


def find_mention(snapshot: Snapshot, offset: int) -> Mention | None:
    """Return the mention of a name at an offset."""
    place = snapshot.source.span(offset, offset)
    return snapshot.names.at(snapshot.file, place.line, place.column)


def find_references(snapshot: Snapshot, offset: int, *, declaration: bool) -> tuple[Span, ...]:
    """Return where the name at an offset is mentioned, and declared where asked for."""
    mention = find_mention(snapshot, offset)
    if mention is None:
        return ()
    declared = snapshot.names.declared.get(mention.symbol)
    own = None if declared is None or declaration else declared.span
    return tuple(each.span for each in snapshot.names.of(mention.symbol) if each.span != own)


def check_rename(snapshot: Snapshot, offset: int) -> Mention:
    """Return the name at an offset where it can be changed. Raises RenameError."""
    mention = find_mention(snapshot, offset)
    if snapshot.document is None:
        raise RenameError("the text cannot be read: correct it first")
    if mention is None:
        raise RenameError("there is no name here that the spec declares")
    declared = snapshot.names.declared.get(mention.symbol)
    if declared is None:
        raise RenameError(f"'{mention.symbol.name}' is not declared")
    if mention.symbol.space == "data" and mention.symbol.name in ROLES and not mention.symbol.scope:
        raise RenameError(f"'{mention.symbol.name}' is a word of the language: it says what the data is for")
    others = {each.span.file for each in snapshot.names.of(mention.symbol)} - {snapshot.file}
    if others or declared.span.file != snapshot.file:
        file = min(others or {declared.span.file})
        raise RenameError(f"'{mention.symbol.name}' is declared or used in {file}, which other specs may include")
    if mention.symbol in snapshot.names.hidden:
        raise RenameError(f"'{mention.symbol.name}' is also mentioned through a variable or an escape")
    if snapshot.checked.plan is None:
        raise RenameError("the spec has errors, and a use may be overlooked: correct them first")
    return mention


def rename(snapshot: Snapshot, offset: int, name: str) -> tuple[Span, ...]:
    """Return the places where a new name is to be written. Raises RenameError where it cannot be."""
    mention = check_rename(snapshot, offset)
    symbol = mention.symbol
    is_valid = _VARIABLE.fullmatch(name) is not None if symbol.space == "variable" else is_name(name)
    if not is_valid or name == PI:
        raise RenameError(f"'{name}' is not a name that can be given")
    for each in snapshot.names.declared:
        if each.space == symbol.space and each.name == name:
            where = f" in the block '{each.scope}'" if each.scope else ""
            raise RenameError(f"there is a '{name}' already{where}")
    places = tuple(each.span for each in snapshot.names.of(symbol))
    changed = replace(snapshot, text=write(snapshot, places, name))
    if changed.checked.plan is None:
        problem = changed.checked.diagnostics[0].message
        raise RenameError(f"'{name}' would be an error: {problem}")
    return places


def write(snapshot: Snapshot, places: tuple[Span, ...], name: str) -> str:
    """Return the text with a name at some places."""
    source, text = snapshot.source, snapshot.text
    for span in reversed(places):
        start, end = source.offset(span.line, span.column), source.offset(span.end_line, span.end_column)
        text = text[:start] + name + text[end:]
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the outline: a section of the document or a block, with what it declares."""

    name: str
    span: Span
    whole: Span
    entries: tuple[Declared, ...]


def outline(snapshot: Snapshot) -> Iterator[Section]:
    """Yield the sections of a document with their declarations, in the order of the language."""
    document = snapshot.document
    if document is None or not isinstance(document.data, dict):
        return
    for name in _SECTIONS:
        place = document.places.get((name,))
        if place is None or place.key is None or place.key.file != snapshot.file:
            continue
        entries = tuple(
            each
            for each in snapshot.names.declared.values()
            if each.path[0] == name and len(each.path) == 2 and each.span.file == snapshot.file
        )
        yield Section(name=name, span=place.key, whole=place.value, entries=entries)


def list_inside(snapshot: Snapshot, block: Symbol) -> tuple[Declared, ...]:
    """Return the ops of a block."""
    return tuple(
        each
        for each in snapshot.names.declared.values()
        if each.symbol.scope == block.name
        and each.path[:1] == ("blocks",)
        and each.path[2:3] == ("ops",)
        and len(each.path) == 4
    )
