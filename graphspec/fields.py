"""The types that fields of several declarations share: numbers, names in lists, shapes, plain values."""

from __future__ import annotations

from collections.abc import Sized
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

from annotated_types import Ge, Gt, Le
from pydantic import AfterValidator, AllowInfNan, BeforeValidator, PlainValidator, Strict, WithJsonSchema

from graphspec.declaration import problem
from graphspec.names import NAME_PATTERN, is_name

if TYPE_CHECKING:
    from graphspec.source import Plain

    Value: TypeAlias = Plain
else:
    Value = object  # a document's reader makes plain values only; checking them again would cost time and say nothing


T = TypeVar("T", bound=Sized)


def listed(value: object) -> object:
    """Make one name a list of one."""
    return [value] if isinstance(value, str) else value


def is_schedule(value: object) -> bool:
    """Return whether a plain value is a mapping with a `schedule`."""
    return isinstance(value, dict) and "schedule" in value


_READ_ONCE = "a schedule stands where a plain value is read once, before the first step"


def _unscheduled(value: object) -> object:
    if is_schedule(value):
        raise problem("GS044", _READ_ONCE, help="write a number")
    return value


_Finite = Annotated[float, Strict(), AllowInfNan(False)]


def _unscheduled_arg(value: object) -> object:
    if is_schedule(value):
        raise problem("GS044", _READ_ONCE, help="write a plain value")
    return value


Args = dict[str, Annotated[Value, BeforeValidator(_unscheduled_arg)]]
"""Keyword arguments that are read once: plain values."""

Number = Annotated[_Finite, BeforeValidator(_unscheduled)]
"""A finite number."""

NumberFromZero = Annotated[_Finite, Ge(0), BeforeValidator(_unscheduled)]
"""A finite number that is not negative."""

PositiveNumber = Annotated[_Finite, Gt(0), BeforeValidator(_unscheduled)]
"""A finite number greater than 0."""

Share = Annotated[_Finite, Ge(0), Le(1), BeforeValidator(_unscheduled)]
"""A number from 0 to 1."""

Count = Annotated[int, Strict(), Ge(1)]
"""A whole number from 1 up."""


def at_least_one(noun: str, *, help: str = "add one, or leave the key out") -> AfterValidator:
    """Return a validator that refuses an empty list, or mapping, of what the noun says."""

    def _check(value: T) -> T:
        if not value:
            raise problem("GS044", f"expected at least one {noun}, found none", help=help)
        return value

    return AfterValidator(_check)


_Listed = BeforeValidator(listed, json_schema_input_type=str | list[str])

Names = Annotated[tuple[str, ...], Strict(False), at_least_one("name"), _Listed]
"""One name, or a list of at least one."""

NamesOrNone = Annotated[tuple[str, ...], Strict(False), _Listed]
"""One name, or a list that may be empty."""


def _size(value: object) -> object:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    if isinstance(value, str) and is_name(value):
        return value
    raise problem(
        "GS044", f"expected a size, found {value!r}", help="a whole number from 1 up, or a name such as `batch`"
    )


_SIZES = [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": NAME_PATTERN}]

Size = Annotated[int | str, PlainValidator(_size), WithJsonSchema({"anyOf": _SIZES})]
Shape = Annotated[tuple[Size, ...], Strict(False)]
"""Sizes: whole numbers, and names of free dimensions such as ``batch``."""
