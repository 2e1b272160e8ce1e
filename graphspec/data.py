"""Data sources: where `stepgraph run` takes its batches from."""

from __future__ import annotations

from typing import Annotated, TypeAlias, cast

from pydantic import AfterValidator, PlainValidator, WithJsonSchema, model_validator

from graphspec.declaration import Declaration, NotBuilt, below, not_built, problem
from graphspec.fields import Count, Value
from graphspec.names import is_path
from graphspec.suggestions import closest
from graphspec.words import describe

SOURCES = ("digits", "npz", "csv")
FILES = ("npz", "csv")
"""The sources that read the file at `path`."""
CLASS = "class:"
"""What stands before the path of a user's class in a source."""


def _read_path(value: object) -> str:
    """Return the path of a user's class, which stands beside `class`."""
    if isinstance(value, str) and is_path(value):
        return value
    message = f"expected the path of a class, found {describe(value)}"
    raise below(("class",), problem("GS054", message, help="write `class: pkg.mod:Name`"))


def _check_source(source: str) -> str:
    """Refuse a source that is neither built in nor a class."""
    if source in SOURCES or (source.startswith(CLASS) and is_path(source.removeprefix(CLASS))):
        return source
    near = closest(source, SOURCES, 1)
    label = f"did you mean '{near[0]}'?" if near else ""
    help = f"write {', '.join(SOURCES)}, or `class: pkg.mod:Name` in its place"
    raise problem("GS043", f"no data source is named '{source}'", label=label, help=help)


def _read_column(value: object) -> str | tuple[str, ...]:
    """Return a name, or several."""
    if isinstance(value, str):
        return value
    names = _list_texts(value)
    if not names:
        message = f"expected the name of a column, or a list of names, found {describe(value)}"
        raise problem("GS044", message, help="write `x: height`, or `x: [height, width]`")
    return names


def _list_texts(value: object) -> tuple[str, ...]:
    """Return a list of texts; nothing for any other value."""
    entries = cast("list[object]", value) if isinstance(value, list | tuple) else []
    texts = tuple(entry for entry in entries if isinstance(entry, str))
    return texts if len(texts) == len(entries) else ()


Columns: TypeAlias = str | tuple[str, ...]
_ColumnField = Annotated[
    Columns,
    PlainValidator(_read_column),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]


class DataSource(Declaration):
    """A set of samples and how batches are made of it."""

    source: Annotated[str, AfterValidator(_check_source)]
    """`digits` (bundled), `npz` (a file of arrays), `csv` (a table), or a user's class: `class: pkg.mod:Name`."""
    batch: Count
    """How many samples a batch has."""
    shuffle: bool = False
    """Whether the samples are put in a new random order in every epoch."""
    drop_last: bool | None = None
    """Whether a last batch that is not full is left out (default: yes for `train`, no for others)."""
    split: str | None = None
    """Which part of the set is used, such as `train` or `test`."""
    columns: dict[str, _ColumnField] = {}
    """The set's name for each input, where it is not the input's own; several of a file become one: `{x: [a, b]}`."""
    path: str | None = None
    """The file, relative to the spec."""
    args: dict[str, Value] = {}
    """Keyword arguments of the source."""
    seed: int | None = None
    """Seed of the shuffling (default: the document's)."""
    mix: NotBuilt = None

    @model_validator(mode="before")
    @classmethod
    def _name_source(cls, value: object) -> object:
        """Read `class: pkg.mod:Name` as the source `class:pkg.mod:Name`."""
        if not isinstance(value, dict):
            return value
        written = cast("dict[str, object]", value)
        if written and all(isinstance(item, dict) for item in written.values()):
            raise not_built("taking turns between several training sets", help="give one source")
        if "class" not in written:
            return written
        if "source" in written:
            raise below(("class",), problem("GS053", "a data source has a `source` or a `class`, found both", at="key"))
        rest = {key: item for key, item in written.items() if key != "class"}
        return {**rest, "source": f"{CLASS}{_read_path(written['class'])}"}

    @model_validator(mode="after")
    def _check(self) -> DataSource:
        if self.source in FILES and self.path is None:
            message, help = f"the source `{self.source}` needs a `path`", f"write `path: data.{self.source}`"
            raise problem("GS053", message, help=help, at="key")
        return self

    @property
    def class_path(self) -> str | None:
        """Return the import path of a user's source, or None for a built-in one."""
        return self.source.removeprefix(CLASS) if self.source.startswith(CLASS) else None

    def drops_last(self, role: str) -> bool:
        """Return whether a last batch that is not full is left out, for the source under that name in `data`."""
        return role == "train" if self.drop_last is None else self.drop_last
