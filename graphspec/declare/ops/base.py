"""What every op has: when it runs, what it waits for, what it refers to and which values it defines."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import BeforeValidator, Strict, ValidationInfo, WithJsonSchema, field_validator

from graphspec.declare.base import Declaration, Reader, not_built, problem
from graphspec.declare.durations import Duration, DurationField, parse_duration
from graphspec.declare.fields import NAME_PATTERN, OP_PATTERN, NamesOrNone, at_least_one, is_name, listed
from graphspec.declare.parts import Part
from graphspec.words import describe

ModeName: TypeAlias = Literal["train", "eval", "test", "infer"]
ModeWord: TypeAlias = Literal["train", "eval", "test", "infer", "!train", "!eval", "!test", "!infer"]
MODES: tuple[ModeName, ...] = ("train", "eval", "test", "infer")

Role: TypeAlias = Literal[
    "model",  # a declared model
    "source",  # a model, or the average of an `ema`
    "called",  # one of these, or a derived model
    "adapted",  # a model or a derived one
    "rate",  # a model that is a parameter
    "value",  # a value, an input or a state
    "loss",  # the value of a loss or call
    "gradients",  # a gradient set
    "target",  # a model, a derived one or a value
    "state",
    "update",
    "op",  # any op
]
"""What a reference must name. `WANTED` in graphspec/check/names.py has the words for each."""

Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A name that an op mentions, the path of the mention below the op, and what it must be the name of."""

    path: Path
    name: str
    role: Role


def _read_dataset(value: object) -> str:
    """Read the name of a data set, or `!` and a name for all but that one."""
    if isinstance(value, str) and is_name(value.removeprefix("!")):
        return value
    help = 'write `dataset: ds1`, or `dataset: "!ds1"` for all others'
    raise problem("GS044", f"expected the name of a data set, found {describe(value)}", help=help)


DatasetWord = Annotated[
    str,
    Reader(_read_dataset),
    WithJsonSchema({"type": "string", "pattern": f"^!?{NAME_PATTERN.removeprefix('^')}"}),
]
ModeWords = Annotated[
    tuple[ModeWord, ...],
    Strict(False),
    at_least_one("mode"),
    BeforeValidator(listed, json_schema_input_type=ModeWord | list[ModeWord]),
]

DatasetWords = Annotated[
    tuple[DatasetWord, ...],
    Strict(False),
    at_least_one("data set"),
    BeforeValidator(listed, json_schema_input_type=DatasetWord | list[DatasetWord]),
]


IntervalField = Annotated[int | str | Duration, WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string"}]})]
"""A number of steps, the name of an update, or (of an average) a time."""


class OpBase(Declaration):
    """Fields common to all ops."""

    default_modes: ClassVar[tuple[ModeName, ...]] = MODES

    mode: ModeWords | None = None
    """Modes it runs in: one, a list, or `"!eval"` for all but one. Default: every mode (writers of models: train)."""
    after: NamesOrNone | None = None
    """Ops that must have happened; the op then sees what they wrote. `[]` says that none is meant."""
    every: IntervalField | None = None
    """Run at every n-th step, or exactly in the steps in which the named update was applied."""
    start: DurationField | None = None
    """When it runs for the first time, counted from 1: `100 steps`; `3 epochs` is the first step of epoch 3."""
    until: DurationField | None = None
    """When it runs for the last time: `100 steps`; `1 epochs` is the last step of epoch 1."""
    doc: str = ""
    """A remark, kept for readers."""
    dataset: DatasetWords | None = None
    """Data sets it runs for: one, a list, or `"!ds1"` for all but one. Default: every one whose values it can read."""
    within: Annotated[tuple[Part, ...], Strict(False)] = ()
    """The iterations and alternatives that it belongs to, the outer ones first: ops that repeat or choose write it."""

    @field_validator("every", mode="before")
    @classmethod
    def _read_every(cls, value: object) -> object:
        if value is None:
            return None
        message = "`every` takes a whole number of steps, or the name of an update"
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise problem("GS057", message, help="write `every: 5`")
        if isinstance(value, int) and value < 1:
            raise problem("GS057", f"`every` is at least 1, found {value}", help="1 is every step")
        if isinstance(value, str) and not re.fullmatch(OP_PATTERN, value):
            raise problem("GS057", f"{message}, found {value!r}", help="write `every: 5`")
        return value

    @field_validator("start", "until", mode="before")
    @classmethod
    def _read_moment(cls, value: object, info: ValidationInfo) -> object:
        """Read when an op starts or ends; epochs count from 1, so no op starts in the middle of one before that."""
        if value is None:
            return None
        if isinstance(value, dict):
            help = "write a moment, as in `1000 steps` or `3 epochs`"
            raise not_built(f"a mapping for `{info.field_name}`", help=help)
        duration = parse_duration(value)
        if info.field_name == "start" and duration.unit == "epochs" and duration.count < 1:
            message = f"`start` counts epochs from 1, found {describe(value)}"
            raise problem("GS050", message, help="`start: 1 epochs` is the first step; for a part of it write steps")
        return duration

    @property
    @abstractmethod
    def kind(self) -> str:
        """Return the key that makes this op what it is."""

    @property
    def opens(self) -> Duration | None:
        """Return when it may fire for the first time; None: from the first step on."""
        return self.start

    def runs_in(self, mode: str) -> bool:
        """Return whether the op may run in a mode."""
        words = self.mode if self.mode is not None else self.default_modes
        return f"!{mode}" not in words and (mode in words or all(word.startswith("!") for word in words))

    def runs_on(self, dataset: str) -> bool:
        """Return whether the op may run on a batch of a data set; an empty name is none of those that specs name."""
        words = self.dataset or ()
        wanted = [word for word in words if not word.startswith("!")]
        return f"!{dataset}" not in words and (dataset in wanted or not wanted)

    def defines(self, name: str) -> tuple[str, ...]:
        """Return the values that the op of this name defines."""
        return (name,)

    def references(self) -> Iterator[Reference]:
        """Yield every name the op mentions, those of the common fields last."""
        yield from self.operands()
        for index, name in enumerate(self.after or ()):
            yield Reference(path=("after", index), name=name, role="op")
        if isinstance(self.every, str):
            yield Reference(path=("every",), name=self.every, role="update")

    @abstractmethod
    def operands(self) -> Iterator[Reference]:
        """Yield the names that the fields of this kind mention."""
