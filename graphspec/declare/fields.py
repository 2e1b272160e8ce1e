"""What fields of several declarations share: names and their patterns, and types of numbers, lists, shapes, values."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Sized
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar

from annotated_types import Ge, Gt, Le
from pydantic import (
    AfterValidator,
    AllowInfNan,
    BeforeValidator,
    Strict,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from graphspec.declare.base import Reader, problem
from graphspec.words import quote

if TYPE_CHECKING:
    from graphspec.read.source import Plain

    Value: TypeAlias = Plain
else:
    Value = object  # a document's reader makes plain values only; checking them again would cost time and say nothing


T = TypeVar("T", bound=Sized)

NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
OP_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*(\.([A-Za-z_][A-Za-z0-9_]*|[1-9][0-9]*))*$"
"""The name of an op or a value: one with dots is of a block, and a number is that of an iteration or alternative."""
KEYWORDS = frozenset((*keyword.kwlist, "__debug__"))
"""Words of Python: a name becomes a variable of the generated source, and nothing may be assigned to these."""

PATH_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
"""``pkg.mod:Name``: how a user's class or function is named."""

_NAME = re.compile(NAME_PATTERN)
_PATH = re.compile(PATH_PATTERN)


def is_name(text: str) -> bool:
    """Return whether a text may name an input, a model, an op or a value."""
    return _NAME.fullmatch(text) is not None and text not in KEYWORDS


def is_part_name(text: str) -> bool:
    """Return whether a text may stand between the dots of the name of an op: a name, or the number of an iteration."""
    return is_name(text) or (text.isdecimal() and text.isascii() and not text.startswith("0"))


def is_path(text: str) -> bool:
    """Return whether a text is an import path of the form ``pkg.mod:Name``."""
    return _PATH.fullmatch(text) is not None and KEYWORDS.isdisjoint(re.split("[.:]", text))


def listed(value: object) -> object:
    """Make one name a list of one."""
    return [value] if isinstance(value, str) else value


def listed_item(value: object) -> object:
    """Make one item, a word or a mapping, a list of one."""
    alone: list[object] = [value]
    return alone if isinstance(value, str | dict) else value


def is_schedule(value: object) -> bool:
    """Return whether a plain value is a mapping with a `schedule`."""
    return isinstance(value, dict) and "schedule" in value


def _unscheduled(help: str) -> BeforeValidator:
    """Return a validator that refuses schedules where a plain value is read once."""

    def refuse(value: object) -> object:
        """Raise a validation error for a schedule."""
        if is_schedule(value):
            raise problem(
                "GS044", "a schedule is not allowed here: the value is read once, before the first step", help=help
            )
        return value

    return BeforeValidator(refuse)


_NUMBER = _unscheduled("write a number")


_Finite = Annotated[float, Strict(), AllowInfNan(False)]


def _check_keyword(name: str) -> str:
    if is_name(name):
        return name
    what = "is a Python keyword" if name in KEYWORDS else "is not a name"
    help = "an argument is passed by its name: letters, digits and `_`, no leading digit, and not a Python keyword"
    raise problem("GS058", f"expected the name of an argument, but {quote(name)} {what}", help=help, at="key")


def check_keywords(keys: Iterable[str]) -> None:
    """Raise a validation error with code GS058 where keys that become names of arguments are no names."""
    wrong: list[InitErrorDetails] = []
    for key in keys:
        try:
            _check_keyword(key)
        except PydanticCustomError as error:
            wrong.append(InitErrorDetails(type=error, loc=(key,), input=key))
    if wrong:
        raise ValidationError.from_exception_data("spec", wrong)


Keyword = Annotated[str, AfterValidator(_check_keyword), WithJsonSchema({"type": "string", "pattern": NAME_PATTERN})]
"""A key that becomes the name of an argument, unchanged, in the generated source."""

Args = dict[Keyword, Annotated[Value, _unscheduled("write a plain value")]]
"""Keyword arguments that are read once: plain values."""

Number = Annotated[_Finite, _NUMBER]
"""A finite number."""

NumberFromZero = Annotated[_Finite, Ge(0), _NUMBER]
"""A finite number that is not negative."""

PositiveNumber = Annotated[_Finite, Gt(0), _NUMBER]
"""A finite number greater than 0."""

Share = Annotated[_Finite, Ge(0), Le(1), _NUMBER]
"""A number from 0 to 1."""

Count = Annotated[int, Strict(), Ge(1)]
"""A whole number from 1 up."""


def at_least_one(noun: str, *, help: str = "add one, or leave out the key") -> AfterValidator:
    """Return a validator that refuses an empty list, or mapping, of what the noun says."""

    def check(value: T) -> T:
        """Raise a validation error where there is none."""
        if not value:
            raise problem("GS044", f"expected at least one {noun}, found none", help=help)
        return value

    return AfterValidator(check)


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

Size = Annotated[int | str, Reader(_size), WithJsonSchema({"anyOf": _SIZES})]
Shape = Annotated[tuple[Size, ...], Strict(False)]
"""Sizes: whole numbers, and names of free dimensions such as ``batch``."""
