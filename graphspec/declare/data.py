"""Data sources: where `stepgraph run` takes its batches from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeAlias, cast

from pydantic import Discriminator, Tag, WithJsonSchema, field_validator, model_validator

from graphspec.declare.base import Declaration, Deferred, Reader, below, problem
from graphspec.declare.fields import Count, Keyword, NumberFromZero, Value, at_least_one, is_path
from graphspec.declare.inputs import InputSpec
from graphspec.words import describe, did_you_mean

SOURCE_MEANINGS: Mapping[str, str] = {
    "digits": "The bundled images of handwritten digits.",
    "npz": "A file of NumPy arrays.",
    "csv": "A table with a header.",
}
SOURCES = tuple(SOURCE_MEANINGS)
FILES = ("npz", "csv")
"""The sources that read the file at `path`."""
CLASS = "class:"
"""The prefix of a source that is a user's class; its path follows."""

DIGITS: Mapping[str, int] = {"train": 1437, "test": 360, "all": 1797}
"""The parts of the bundled digits -> how many samples each has."""
DIGITS_ARGS = ("range", "flatten")
"""The arguments of `digits`."""

Columns: TypeAlias = str | tuple[str, ...]


def _read_column(value: object) -> Columns:
    """Return a name, or several; a position in a tuple is the name of what is there."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return str(value)
    entries = cast("list[object]", value) if isinstance(value, list | tuple) else []
    names = tuple(entry for entry in entries if isinstance(entry, str))
    if not names or len(names) != len(entries):
        found = describe(cast("object", value))
        message = f"expected the name of a column, or a list of names, found {found}"
        help = "write `x: height`, `x: [height, width]`, or `x: 0` for the first of a tuple"
        raise problem("GS044", message, help=help)
    return names


_ColumnField = Annotated[
    Columns,
    Reader(_read_column),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "integer", "minimum": 0},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
            ]
        }
    ),
]


class DataSource(Declaration):
    """A set of samples and how batches are made of it."""

    source: str
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
    """The set's name for each input, where it is not the input's own, or its position in the tuples of a class:
    `{x: 0}`; several of a file become one: `{x: [a, b]}`."""
    path: str | None = None
    """The file, relative to the spec."""
    args: dict[Keyword, Value] = {}
    """Keyword arguments of the source."""
    seed: int | None = None
    """Seed of the shuffling (default: the document's)."""

    @model_validator(mode="before")
    @classmethod
    def _name_source(cls, value: object) -> object:
        """Read `class: pkg.mod:Name` as the source `class:pkg.mod:Name`."""
        if not isinstance(value, dict):
            return value
        written = cast("dict[str, object]", value)
        if "class" not in written:
            return written
        if "source" in written:
            raise below(("class",), problem("GS053", "a data source has a `source` or a `class`, found both", at="key"))
        rest = {key: item for key, item in written.items() if key != "class"}
        path = written["class"]
        if not isinstance(path, str) or not is_path(path):
            message = f"expected the path of a class, found {describe(path)}"
            raise below(("class",), problem("GS054", message, help="write `class: pkg.mod:Name`"))
        return {**rest, "source": f"{CLASS}{path}"}

    @field_validator("source")
    @classmethod
    def _check_source(cls, source: str) -> str:
        if source in SOURCES or (source.startswith(CLASS) and is_path(source.removeprefix(CLASS))):
            return source
        help = f"write {', '.join(SOURCES)}, or `class: pkg.mod:Name` instead"
        raise problem("GS043", f"no data source is named '{source}'", label=did_you_mean(source, SOURCES), help=help)

    @model_validator(mode="after")
    def _check_path(self) -> DataSource:
        if self.source in FILES and self.path is None:
            message, help = f"the source `{self.source}` needs a `path`", f"write `path: data.{self.source}`"
            raise problem("GS053", message, help=help, at="key")
        return self

    @property
    def class_path(self) -> str | None:
        """Return the import path of a user's source, or None for a built-in one."""
        return self.source.removeprefix(CLASS) if self.source.startswith(CLASS) else None

    def part(self, role: str) -> str:
        """Return which part of the digits is used: without `split` the training part for `train`, else that to test."""
        return self.split or ("train" if role == "train" else "test")

    def drops_last(self, role: str) -> bool:
        """Return whether a last batch that is not full is left out, for the source under that name in `data`."""
        return role == "train" if self.drop_last is None else self.drop_last


def describe_digits(source: DataSource) -> Mapping[str, InputSpec]:
    """Return the arrays of the bundled digits by name, as inputs that take them unchanged."""
    shape = ("batch", 64) if source.args.get("flatten") is True else ("batch", 1, 8, 8)
    return {"image": InputSpec(shape=shape), "label": InputSpec(shape=("batch",), dtype="int64")}


def find_ink(source: DataSource) -> tuple[float, float] | None:
    """Return the numbers that the digits have for blank paper and full ink; None where `range` is no such pair."""
    match source.args.get("range", [-1, 1]):
        case [int() | float() as low, int() | float() as high] if low < high:
            return float(low), float(high)
        case _:
            return None


MIX = "mix"
"""The key, next to the names of training sets, for how often each is drawn."""


class TrainingSets(Declaration):
    """Several training sets: they take turns batch by batch, or each batch is drawn from them by `mix`."""

    sets: Annotated[dict[str, Deferred[DataSource]], at_least_one("training set")]
    """The sets by name."""
    mix: dict[str, NumberFromZero] | None = None
    """How often each set is drawn, against the others: `{ds1: 0.7, ds2: 0.3}`, or a list in their order."""

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, value: object) -> object:
        """Separate the sets from `mix`, and turn a list of numbers into a mapping by name."""
        if not isinstance(value, dict):
            return value
        written = cast("dict[str, object]", value)
        sets = {name: item for name, item in written.items() if name != MIX}
        mix = written.get(MIX)
        if isinstance(mix, list | tuple):
            numbers = cast("list[object]", mix)
            if len(numbers) != len(sets):
                message = f"`mix` has {len(numbers)} numbers for {len(sets)} training sets"
                raise below((MIX,), problem("GS044", message, help="write one for each, in their order"))
            mix = dict(zip(sets, numbers, strict=True))
        return {"sets": sets, **({MIX: mix} if MIX in written else {})}

    @model_validator(mode="after")
    def _check_mix(self) -> TrainingSets:
        if self.mix is None:
            return self
        if self.mix.keys() != self.sets.keys():
            others = sorted(self.mix.keys() ^ self.sets.keys())
            message = f"`mix` must have one number for each of {', '.join(self.sets)}; check {', '.join(others)}"
            raise below((MIX,), problem("GS044", message, help="0 leaves a set out"))
        if not sum(self.mix.values()) > 0:
            message = "`mix` draws no set: all its numbers are 0"
            raise below((MIX,), problem("GS044", message, help="write how often each set is drawn"))
        return self


def _tag(value: object) -> str:
    """Return the tag of an item of `data`: one source, or several, which hold sources by name and no field of one."""
    written = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    others = (item for key, item in written.items() if key not in (*DataSource.model_fields, "class", MIX))
    is_several = any(isinstance(item, dict) for item in others)
    is_several = is_several and not any(key in written for key in ("source", "class", "batch"))
    return "<sets>" if is_several or isinstance(value, TrainingSets) else "<source>"


DataField = dict[
    str,
    Annotated[
        Annotated[Deferred[DataSource], Tag("<source>")] | Annotated[Deferred[TrainingSets], Tag("<sets>")],
        Discriminator(_tag),
    ],
]
"""The section `data`: a source by role, of training also several."""
