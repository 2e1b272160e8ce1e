"""Read a document: from a file or a text to plain data that knows the place of every key and value."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path as FilePath
from typing import NoReturn

from msgspec import Struct

from graphspec.diagnostics import Diagnostic, Span, SpecError
from graphspec.limits import Limits
from graphspec.read.builder import Path, Plain, Region, SourceText
from graphspec.read.json_reader import read_json, read_plain
from graphspec.read.yaml_reader import read_yaml
from graphspec.words import closest

_BYTE_ORDER_MARK = "\ufeff"
_NOT_TEXT = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_MOST_SIBLINGS = 1000


def read_bytes(path: FilePath, file: str, limits: Limits) -> bytes:
    """Return what is in a file, up to one byte more than it may have; raise SpecError where it cannot be read."""
    try:
        with path.open("rb") as stream:
            return stream.read(limits.bytes + 1)
    except FileNotFoundError:
        try:
            names = sorted(entry.name for entry in islice(path.parent.iterdir(), _MOST_SIBLINGS))
        except OSError:
            help = f"there is no directory '{path.parent}' either"
        else:
            shown = FilePath(file) if FilePath(file).name == path.name else path
            near = [str(shown.with_name(name)) for name in closest(path.name, names, 1)]
            help = f"perhaps it is {near[0]!r}" if near else "check the path; `stepgraph init` writes a spec"
        _fail("GS016", f"there is no file {file!r}", help=help)
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
    if raw.startswith(_UTF16_MARKS):
        raise _not_utf8(raw, 0, file, "save it as UTF-8: it looks like UTF-16")
    try:
        decoded = raw.decode("utf-8", "strict")
    except UnicodeDecodeError as error:
        raise _not_utf8(raw, error.start, file, "save the file as UTF-8 text") from None
    text = SourceText(file=file, content=decoded.removeprefix(_BYTE_ORDER_MARK))
    found = _NOT_TEXT.search(text.content)
    if found is not None:
        character = f"U+{ord(found.group()):04X}"
        message = f"this is not plain text: it has the control character {character}"
        span, help = text.span(*found.span()), "save it as UTF-8 text, or remove the character"
        _fail("GS002", message, span=span, texts=text.texts, help=help)
    return text


def _not_utf8(raw: bytes, position: int, file: str, help: str) -> SpecError:
    """Return the error for a byte that is not UTF-8; the line is shown unless the file is binary altogether."""
    before = SourceText(file=file, content=raw[:position].decode("utf-8", "surrogatepass"))
    place = before.span(len(before.content), len(before.content))
    is_binary = b"\x00" in raw
    message = "this is a binary file" if is_binary else f"byte 0x{raw[position]:02x} is not UTF-8"
    texts = {} if is_binary else {file: raw.decode("utf-8", "replace")}
    return SpecError([Diagnostic(code="GS002", message=message, span=place, help=help)], texts)


def _fail(
    code: str, message: str, *, help: str, span: Span | None = None, texts: Mapping[str, str] | None = None
) -> NoReturn:
    raise SpecError([Diagnostic(code=code, message=message, span=span, help=help)], texts or {})


__all__ = ["Document", "Path", "Place", "Places", "Plain", "read_document"]

_DEFAULT_LIMITS = Limits()


class Place(Struct, frozen=True, kw_only=True):
    """Where a value stands, and its key where it has one."""

    key: Span | None
    value: Span


class Places(Mapping[Path, Place]):
    """The places of all values of a text by their paths, worked out when they are asked for."""

    def __init__(self, text: SourceText, regions: Mapping[Path, Region]) -> None:
        self._text = text
        self._regions = regions

    def __getitem__(self, path: Path) -> Place:
        key_start, key_end, start, end = self._regions[path]
        key = None if key_start < 0 else self._text.span(key_start, key_end)
        return Place(key=key, value=self._text.span(start, end))

    def __contains__(self, path: object) -> bool:
        return path in self._regions

    def __iter__(self) -> Iterator[Path]:
        return iter(self._regions)

    def __len__(self) -> int:
        return len(self._regions)


class Document(Struct, frozen=True, kw_only=True):
    """A document: its plain data, and the places of keys and values by their paths."""

    file: str
    text: str
    data: Plain
    places: Mapping[Path, Place]
    assignments: Mapping[str, str] = {}
    """The texts of overrides, by the names that their places have for a file."""
    others: Mapping[str, str] = {}
    """The texts of files that it includes."""

    @property
    def texts(self) -> Mapping[str, str]:
        """Return every text that a place of this document is in, by file name."""
        return {self.file: self.text, **self.assignments, **self.others}

    def key_span(self, path: Path) -> Span:
        """Return where the key of a path stands; of what has none, where its value does."""
        place = self._find_place(path)
        return place.value if place.key is None else place.key

    def value_span(self, path: Path) -> Span:
        """Return where the value of a path stands, or the nearest there is of what it would be in."""
        return self._find_place(path).value

    def _find_place(self, path: Path) -> Place:
        for length in range(len(path), -1, -1):
            if path[:length] in self.places:
                rest = path[length:]
                if len(rest) > 1 and rest[0] == 0:  # one item may be written without its list
                    return self._find_place((*path[:length], *rest[1:]))
                return self.places[path[:length]]
        return Place(key=None, value=Span(file=self.file, line=1, column=1, end_line=1, end_column=1))


def read_document(
    path_or_text: FilePath | str, *, name: str | None = None, limits: Limits = _DEFAULT_LIMITS
) -> Document:
    """Return the document in a file (given by a path) or in a text (given as a string).

    A name that ends in ``.json`` makes it JSON, any other YAML; without ``name``, a file goes by its path. Raises
    SpecError with every problem of the text.
    """
    file = name if name is not None else "<text>" if isinstance(path_or_text, str) else str(path_or_text)
    content = path_or_text if isinstance(path_or_text, str) else read_bytes(path_or_text, file, limits)
    text = decode(content, file, limits)
    is_json = file.lower().endswith(".json")
    may_be_json = is_json or text.content.lstrip().startswith("{")
    reading = read_plain(text.content, limits, as_yaml=not is_json) if may_be_json else None
    if reading is None:
        reading = (read_json if is_json else read_yaml)(text, limits)
    return Document(file=file, text=text.content, data=reading.data, places=Places(text, reading.regions))
