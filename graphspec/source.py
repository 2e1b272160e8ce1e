"""Read a document: from a file or a text to plain data that knows the place of every key and value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath

from graphspec.builder import Path, Plain, Region
from graphspec.diagnostics import Span
from graphspec.files import decode, read_bytes
from graphspec.json_reader import read_json
from graphspec.limits import Limits
from graphspec.text import SourceText
from graphspec.yaml_reader import read_yaml

__all__ = ["Document", "Path", "Place", "Places", "Plain", "read_document"]

_DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document: its plain data, and the places of keys and values by their paths."""

    file: str
    text: str
    data: Plain
    places: Mapping[Path, Place]
    assignments: Mapping[str, str] = field(default_factory=dict[str, str])
    """The texts of overrides, by the names that their places have for a file."""

    @property
    def texts(self) -> Mapping[str, str]:
        """Return every text that a place of this document is in, by file name."""
        return {self.file: self.text, **self.assignments}

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
    reading = (read_json if file.lower().endswith(".json") else read_yaml)(text, limits)
    return Document(file=file, text=text.content, data=reading.data, places=Places(text, reading.regions))
