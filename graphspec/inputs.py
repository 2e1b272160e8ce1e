"""Inputs: the tensors a step is called with, and the operands an op is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias, cast

from pydantic import PlainValidator, WithJsonSchema, model_validator

from graphspec.declaration import Declaration, problem
from graphspec.fields import Keyword, Shape
from graphspec.scheduled import read_schedule
from graphspec.schedules import ScheduleSpec
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


def _read_operand(value: object) -> object:
    if isinstance(value, str | bool | int | float | ScheduleSpec):
        return value
    schedule = read_schedule(value)
    if schedule is not None:
        return schedule
    raise problem("GS044", f"expected the name of a value, a number or a boolean, found {describe(value)}")


def _sort_mapping(value: dict[str, object]) -> dict[str, object]:
    """Take a mapping for keywords, unless it is one of our own fields, which hold what no operand is."""
    is_sorted = value.keys() <= {"positional", "keyword"} and all(isinstance(v, tuple | dict) for v in value.values())
    return value if is_sorted else {"keyword": value}


OperandField = Annotated[
    Operand, PlainValidator(_read_operand), WithJsonSchema({"type": ["string", "number", "boolean"]})
]


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
                return _sort_mapping(cast("dict[str, object]", value))
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
