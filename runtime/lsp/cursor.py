"""Where the cursor is in a text that is being written: the path of what is under it, also where the text is broken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from yaml import CBaseLoader, FlowMappingStartToken, FlowSequenceStartToken
from yaml.error import MarkedYAMLError, YAMLError
from yaml.tokens import FlowMappingEndToken, FlowSequenceEndToken

from graphspec.read.source import Document, Path, Plain
from runtime.lsp.names import look
from runtime.lsp.snapshot import Snapshot

MARK = "zqcursorqz"
"""What is put in place of the cursor; a name like any other."""
_WORD = re.compile(r"[\w.]*$", re.ASCII)
_ALONE = re.compile(r"[ ]*(?P<dash>- *)?[\w.]*$", re.ASCII)
_REST = re.compile(r"(?P<word>[\w.]*)[ \t]*(#[^\r\n]*)?(?=[\r\n]|\Z)", re.ASCII)
_QUOTES = ('"', "'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """What the cursor is in: a key of the mapping at a path, or the value there."""

    document: Document
    """The text with a mark in place of the cursor, or what could be read of it."""
    path: Path
    is_key: bool
    before: str
    """What stands before the cursor of the key or value."""
    is_whole: bool
    """Whether all of the text could be read."""
    start: int
    """The offset at which the word before the cursor begins."""

    def get(self, path: Path) -> Plain:
        """Return what stands at a path; None where nothing does."""
        return look(self.document.data, path)


def find_cursor(snapshot: Snapshot, offset: int) -> Cursor | None:
    """Return what an offset of the text is in; None where nothing around it can be read."""
    return next(find_cursors(snapshot, offset), None)


def find_cursors(snapshot: Snapshot, offset: int) -> Iterator[Cursor]:
    """Yield what an offset of the text may be in, the likeliest first: of all of the text, else of what can be read."""
    text = snapshot.text
    word = _WORD.search(text, 0, offset)
    start = offset if word is None else word.start()
    for candidate, is_whole in _list_candidates(text, offset):
        document = snapshot.read(candidate)
        found = None if document is None else _find_mark(document.data, ())
        if document is not None and found is not None:
            path, is_key, before = found
            yield Cursor(document=document, path=path, is_key=is_key, before=before, is_whole=is_whole, start=start)


def _list_candidates(text: str, offset: int) -> Iterator[tuple[str, bool]]:
    """Yield texts with the mark at the cursor: all of it, what is before it, and the lines that it is inside of.

    A word that is alone on its line may be a key that has no colon yet, or a value.
    """
    before, after = text[:offset], text[offset:]
    line = before[max(before.rfind("\n"), before.rfind("\r")) + 1 :]
    rest, alone = _REST.match(after), _ALONE.fullmatch(line)
    values = [(f"{before}{MARK}{after}", True)]
    keys: list[tuple[str, bool]] = []
    if rest is not None and alone is not None:
        keys.append((f"{before}{MARK}{rest['word']}:{after[rest.end('word') :]}", True))
    yield from (*values, *keys) if alone is not None and alone["dash"] else (*keys, *values)
    for lines in (before, _find_lines(before)):
        if keys:
            yield close(f"{lines}{MARK}:"), False
        yield close(f"{lines}{MARK}"), False


def close(text: str) -> str:
    """Return a text with the quote and the brackets closed that are open at its end."""
    for _ in range(2):
        opened: list[str] = []
        scanner = CBaseLoader(text)
        try:
            while (token := scanner.get_token()) is not None:
                match token:
                    case FlowMappingStartToken():
                        opened.append("}")
                    case FlowSequenceStartToken():
                        opened.append("]")
                    case FlowMappingEndToken() | FlowSequenceEndToken() if opened:
                        opened.pop()
                    case _:
                        pass
        except YAMLError as error:
            mark = error.context_mark if isinstance(error, MarkedYAMLError) else None
            quote = "" if mark is None else text[mark.index : mark.index + 1]
            if quote in _QUOTES:
                text += quote
                continue
        finally:
            scanner.dispose()
        return text + "".join(reversed(opened))
    return text


def _find_lines(before: str) -> str:
    """Return the last line of a text, and above it those that it is indented below."""
    *above, last = re.split(r"\r\n|\r|\n", before)
    lines, indent = [last], len(last) - len(last.lstrip())
    for line in reversed(above):
        width = len(line) - len(line.lstrip())
        if line.strip() and not line.lstrip().startswith("#") and width < indent:
            lines.append(line)
            indent = width
    return "\n".join(reversed(lines))


def _find_mark(value: Plain, path: Path) -> tuple[Path, bool, str] | None:
    """Return the path of the key or value with the mark, whether it is a key, and what stands before the mark."""
    match value:
        case str() if MARK in value:
            return path, False, value.partition(MARK)[0]
        case dict():
            for key, each in value.items():
                if MARK in key:
                    return path, True, key.partition(MARK)[0]
                if (found := _find_mark(each, (*path, key))) is not None:
                    return found
        case list():
            for index, each in enumerate(value):
                if (found := _find_mark(each, (*path, index))) is not None:
                    return found
        case _:
            pass
    return None
