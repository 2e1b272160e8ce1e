"""Inputs: the tensors a step is called with, and the operands an op is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias, cast

from pydantic import Field, Strict, WithJsonSchema, model_validator

from graphspec.declare.base import Declaration, Reader, below, problem
from graphspec.declare.fields import Keyword, Number, Shape
from graphspec.declare.schedules import ScheduleSpec, read_schedule
from graphspec.words import describe

DType: TypeAlias = Literal["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"]
Operand: TypeAlias = str | bool | int | float | ScheduleSpec
"""The name of a value, an input or a state; a literal number or boolean; or a schedule."""


class InputSpec(Declaration):
    """A tensor that the caller passes in the batch."""

    shape: Shape | None = None
    """Its sizes, the free ones by name; the one named `batch` is what micro-batches and replicas split."""
    dtype: DType = "float32"
    """The type of its elements."""
    of: str | None = None
    """The input whose tensor of an earlier batch it is, where a step takes several: `batch: next` declares such."""
    batch: Annotated[int, Strict(), Field(ge=1)] | None = None
    """Which batch that is, from 1."""


def _read_operand(value: object) -> object:
    if isinstance(value, str | bool | int | float | ScheduleSpec):
        return value
    schedule = read_schedule(value)
    if schedule is not None:
        return schedule
    raise problem("GS044", f"expected the name of a value, a number or a boolean, found {describe(value)}")


OperandField = Annotated[Operand, Reader(_read_operand), WithJsonSchema({"type": ["string", "number", "boolean"]})]


class Inputs(Declaration):
    """The operands of an op: one reference, a list (positional) or a mapping (by keyword)."""

    positional: tuple[OperandField, ...] = ()
    """Operands in order."""
    keyword: dict[Keyword, OperandField] = {}
    """Operands by the names of the called function's arguments."""

    @model_validator(mode="before")
    @classmethod
    def _sort(cls, value: object) -> object:
        match value:
            case str() | bool() | int() | float():
                return {"positional": (value,)}
            case list() | tuple():
                return {"positional": tuple(cast("list[object]", value))}
            case dict():
                written = cast("dict[str, object]", value)
                # Our own fields hold what no operand is; any other mapping is one of keywords.
                is_sorted = written.keys() <= {"positional", "keyword"}
                is_sorted = is_sorted and all(isinstance(each, tuple | dict) for each in written.values())
                return written if is_sorted else {"keyword": written}
            case Inputs():
                return value
            case _:
                raise problem("GS044", f"expected the name of a value, or several, found {describe(value)}")

    def items(self) -> Iterator[tuple[int | str, Operand]]:
        """Yield every operand with its position or keyword."""
        yield from enumerate(self.positional)
        yield from self.keyword.items()

    def references(self) -> Iterator[tuple[int | str, str]]:
        """Yield every operand that is a name, with its position or keyword."""
        for key, operand in self.items():
            if isinstance(operand, str):
                yield key, operand

    def __len__(self) -> int:
        """Return how many operands there are."""
        return len(self.positional) + len(self.keyword)


Beginning: TypeAlias = Literal["zeros", "ones", "normal", "uniform", "unit_normal"]
FLOATS = frozenset({"float32", "float64", "float16", "bfloat16"})


def _read_fixed_size(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    if isinstance(value, str):
        help = "a state outlives its batch: keep a mean over the rows, or a queue of fixed size"
        raise problem("GS044", f"a state has fixed sizes, found the free size {value!r}", help=help)
    raise problem("GS044", f"expected a size, found {value!r}", help="a whole number from 1 up")


FixedSize = Annotated[int, Reader(_read_fixed_size), WithJsonSchema({"type": "integer", "minimum": 1})]


class StateSpec(Declaration):
    """A tensor that outlives the step: ops read it by its name, an `assign` writes it."""

    shape: Annotated[tuple[FixedSize, ...], Strict(False)]
    """Its sizes; `[]` is a scalar."""
    dtype: DType = "float32"
    """The type of its elements; a floating one becomes the type of the step, as that of an input does."""
    init: Beginning | Number = 0.0
    """How it starts: a number everywhere, zeros, ones, normal (std 1), uniform (from -1 to 1), or unit_normal: normal
    numbers, scaled to length 1 along the last axis."""

    @model_validator(mode="after")
    def _check(self) -> StateSpec:
        is_drawn = self.init in ("normal", "uniform", "unit_normal")
        if is_drawn and self.dtype not in FLOATS:
            message = f"`init: {self.init}` draws real numbers, which {self.dtype} cannot hold"
            raise below(("init",), problem("GS044", message, help="write a whole number"))
        if isinstance(self.init, float) and self.dtype not in FLOATS and not self.init.is_integer():
            message = f"`init: {self.init}` is not a number of type {self.dtype}"
            raise below(("init",), problem("GS044", message, help="write a whole number"))
        if self.init == "unit_normal" and not self.shape:
            message = "`init: unit_normal` scales rows, and a single number has none"
            raise below(("init",), problem("GS044", message, help="write `normal`, or give it a shape"))
        return self
