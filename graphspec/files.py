"""Get the text of a file: there, readable, not too large, UTF-8, and nothing but text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import NoReturn

from graphspec.diagnostics import Diagnostic, Span, SpecError
from graphspec.limits import Limits
from graphspec.suggestions import closest
from graphspec.text import SourceText

_BYTE_ORDER_MARK = "\ufeff"
_NOT_TEXT = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_MOST_SIBLINGS = 1000


def read_bytes(path: Path, file: str, limits: Limits) -> bytes:
    """Return what is in a file, up to one byte more than it may have; raise SpecError where it cannot be read."""
    try:
        with path.open("rb") as stream:
            return stream.read(limits.bytes + 1)
    except FileNotFoundError:
        _fail("GS016", f"there is no file {file!r}", help=_suggest_sibling(path))
    except IsADirectoryError:
        _fail("GS017", f"{file!r} is a directory", help="name the spec's file in it")
    except (OSError, ValueError) as error:
        # ValueError: a path with a null character in it.
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        _fail("GS018", f"cannot read {file!r}: {reason.lower()}", help="check the file's permissions")


def decode(content: bytes | str, file: str, limits: Limits) -> SourceText:
    """Return a text without its byte order mark; raise SpecError where it is too large or not text."""
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    start = Span(file=file, line=1, column=1, end_line=1, end_column=1)
    if len(raw) > limits.bytes:
        message = f"the document is larger than {limits.bytes:,} bytes"
        _fail("GS012", message, span=start, help="put data into files and name them, or raise `limits`")
    text = SourceText(file=file, content=_decode(raw, file).removeprefix(_BYTE_ORDER_MARK))
    found = _NOT_TEXT.search(text.content)
    if found is not None:
        character = f"U+{ord(found.group()):04X}"
        message = f"this is not plain text: it has the control character {character}"
        span, help = text.span(*found.span()), "save it as UTF-8 text, or remove the character"
        _fail("GS002", message, span=span, texts=text.texts, help=help)
    return text


def _decode(raw: bytes, file: str) -> str:
    if raw.startswith(_UTF16_MARKS):
        raise _not_utf8(raw, 0, file, "save it as UTF-8: it looks like UTF-16")
    try:
        return raw.decode("utf-8", "strict")
    except UnicodeDecodeError as error:
        raise _not_utf8(raw, error.start, file, "save the file as UTF-8 text") from None


def _not_utf8(raw: bytes, position: int, file: str, help: str) -> SpecError:
    """Return the error for a byte that is not UTF-8; the line is shown unless the file is binary altogether."""
    before = SourceText(file=file, content=raw[:position].decode("utf-8", "surrogatepass"))
    place = before.span(len(before.content), len(before.content))
    is_binary = b"\x00" in raw
    message = "this is a binary file" if is_binary else f"byte 0x{raw[position]:02x} is not UTF-8"
    texts = {} if is_binary else {file: raw.decode("utf-8", "replace")}
    return SpecError([Diagnostic(code="GS002", message=message, span=place, help=help)], texts)


def _suggest_sibling(path: Path) -> str:
    try:
        names = sorted(entry.name for entry in islice(path.parent.iterdir(), _MOST_SIBLINGS))
    except OSError:
        return f"there is no directory '{path.parent}' either"
    near = closest(path.name, names, 1)
    return (
        f"perhaps it is {str(path.with_name(near[0]))!r}" if near else "check the path; `stepgraph init` writes a spec"
    )


def _fail(
    code: str, message: str, *, help: str, span: Span | None = None, texts: Mapping[str, str] | None = None
) -> NoReturn:
    raise SpecError([Diagnostic(code=code, message=message, span=span, help=help)], texts or {})
