"""What a validation error expected, in the words of a document instead of Python's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import cast

from graphspec.builder import Path
from graphspec.scalars import OutOfRangeError, resolve

_TYPES: tuple[tuple[str, str], ...] = (
    ("float_", "a number"),
    ("decimal_", "a number"),
    ("int_", "a whole number"),
    ("bool_", "true or false"),
    ("string_type", "a string"),
    ("string_sub_type", "a string"),
    ("list_", "a list"),
    ("tuple_", "a list"),
    ("set_", "a list"),
    ("frozen_set_", "a list"),
    ("iterable_type", "a list"),
    ("dict_", "a mapping"),
    ("mapping_", "a mapping"),
    ("model_", "a mapping"),
    ("dataclass_", "a mapping"),
    ("none_required", "null"),
)
_CONSTRAINTS: Mapping[str, str] = {
    "greater_than": "a number greater than {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number less than {lt}",
    "less_than_equal": "a number of at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "finite_number": "a finite number",
    "too_short": "{min_length} or more items",
    "too_long": "{max_length} or fewer items",
    "string_too_short": "a string of at least {min_length} characters",
    "string_too_long": "a string of at most {max_length} characters",
    "string_pattern_mismatch": "a string like {pattern}",
    "union_tag_invalid": "one of the kinds {expected_tags}",
}
_CHOICE = re.compile(r"'((?:[^'\\]|\\.)*)'|[^\s',]+")
_LONGEST = 40
_FORMS: Mapping[str, str] = {
    "a number": "a number is written as in `0.5`, `3` or `1e-3`",
    "a whole number": "a whole number is written as in `100`",
    "true or false": "write true or false",
    "a string": "write one name or text",
    "a list": "a list is written `[a, b]`, or with `- ` before each item",
    "a mapping": "a mapping is written `{key: value}`, or with one `key: value` to a line",
}
_PLAIN: Mapping[str, tuple[type, ...]] = {
    "a number": (int, float),
    "a whole number": (int,),
    "true or false": (bool,),
    "a string": (str,),
    "a mapping": (dict,),
}
_OLD_BOOLEANS = ("yes", "no", "on", "off", "y", "n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """What pydantic tells about one error."""

    kind: str
    location: Path
    message: str
    found: object
    context: Mapping[str, object]

    @classmethod
    def read(cls, detail: Mapping[str, object]) -> Detail:
        """Return the detail in one of pydantic's dictionaries."""
        context = cast("Mapping[str, object]", detail.get("ctx", {}))
        location = cast("Path", detail["loc"])
        read = cls(
            kind=str(detail["type"]),
            location=location,
            message=str(detail["msg"]),
            found=detail.get("input"),
            context=context,
        )
        discriminator = str(context.get("discriminator", ""))
        return read._about_field(discriminator.strip("'")) if discriminator.startswith("'") else read

    def _about_field(self, field: str) -> Detail:
        """Return an error about the field that picks a branch of a union as what it is: a wrong choice, or no key."""
        location = (*self.location, field)
        if self.kind == "union_tag_not_found":
            return replace(self, kind="missing", location=location)
        context = {"expected": self.context["expected_tags"]}
        return replace(self, kind="literal_error", location=location, found=self.context["tag"], context=context)

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the allowed values of an error about one of several, as they are written."""
        if self.kind not in ("literal_error", "enum"):
            return ()
        return tuple(
            found.group() for found in _CHOICE.finditer(str(self.context["expected"])) if found.group() != "or"
        )

    @property
    def expected_type(self) -> str | None:
        """Return the type that was expected, or None where the type is not what is wrong."""
        if self.kind == "string_type" or not self.kind.startswith("string_"):
            return next((words for start, words in _TYPES if self.kind.startswith(start)), None)
        return None


def explain_constraint(detail: Detail) -> str | None:
    """Return what a value of the right type must be besides, and what it is; None for other errors."""
    template = _CONSTRAINTS.get(detail.kind)
    if template is None:
        return None
    numbers = {key: f"{item:.15g}" for key, item in detail.context.items() if isinstance(item, float)}
    return template.format_map({**detail.context, **numbers})


def find_remedy(expected: str, found: object) -> str:
    """Return what to write instead, where a value of the wrong type is a well-known slip."""
    if found is None:
        return "leave the key out, or give it a value"
    if expected == "a string" and isinstance(found, bool | int | float):
        return "put it between quotes"
    if expected == "a list" and isinstance(found, bool | int | float | str):
        return f"write a list: `[{found}]`" if len(str(found)) <= _LONGEST else "write a list"
    if expected == "a list" and isinstance(found, dict):
        return "put brackets around it, to make it a list of one"
    if isinstance(found, list):
        only = cast("list[object]", found)[0] if len(cast("list[object]", found)) == 1 else None
        return "write it without the brackets" if isinstance(only, _PLAIN.get(expected, ())) else ""
    if not isinstance(found, str):
        return ""
    if expected == "true or false" and found.lower() in _OLD_BOOLEANS:
        return "yes, no, on and off are strings in YAML 1.2: write true or false"
    if expected.endswith("number"):
        return _find_number_remedy(found)
    return "remove the quotes" if expected == "true or false" and found.lower() in ("true", "false") else ""


def show_form(expected: str) -> str:
    """Return how a value of a type is written."""
    return _FORMS.get(expected, "")


def _find_number_remedy(found: str) -> str:
    plain = found.strip().replace("_", "").replace(",", "")
    try:
        is_number = isinstance(resolve(plain), int | float) and plain.lower() not in ("true", "false")
    except OutOfRangeError:
        return ""
    if not is_number:
        return ""
    return "remove the quotes" if plain == found.strip() else f"write {plain}"
