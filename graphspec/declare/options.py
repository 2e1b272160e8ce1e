"""Tables of options: what a layer, an optimizer or a function of the library takes in addition to its inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, assert_never, cast

from graphspec.declare.equations import EquationError, read_equation
from graphspec.declare.subscripts import SubscriptError, read_subscript

OptionKind: TypeAlias = Literal[
    "int",
    "number",
    "bool",
    "choice",
    "pair",
    "sizes",
    "shape",
    "axes",
    "index",
    "betas",
    "auto",
    "subscript",
    "equation",
]
"""int; number; true or false; one of ``choices``; int or [h, w]; int or a list of ints (sizes, axes), which may begin
with `batch` (shape); an int (index); two numbers; ``auto``, true or false; a text for the brackets of ``x[...]``, or of
``einsum``. Axes, indices and numbers may be nothing where nothing is the default."""

BATCH = "batch"
"""The size of a batch: that of the leading axis."""

OptionDefault: TypeAlias = bool | int | float | str | tuple[float, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: its name, what it takes, and its default (``required`` where it has none)."""

    name: str
    kind: OptionKind
    meaning: str
    default: OptionDefault = None
    required: bool = False
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    """The value must be greater than this."""
    below: float | None = None
    """The value must be less than this."""
    once: bool = False
    """It counts at the start alone, so that no schedule can change it."""

    @property
    def optional(self) -> bool:
        """Return whether nothing is a value of this option."""
        return self.default is None and not self.required


def find_option(options: Iterable[Option], name: str) -> Option | None:
    """Return the option of that name, or None."""
    return next((option for option in options if option.name == name), None)


def find_defaults(options: Iterable[Option]) -> Mapping[str, OptionDefault]:
    """Return the default of every option that has one (None included), in table order."""
    return {option.name: option.default for option in options if not option.required}


def accepts(option: Option, value: object) -> bool:
    """Return whether a plain value is one that the option takes."""
    if value is None:
        return option.optional
    match option.kind:
        case "int" | "index":
            return _is_int(value) and _in_range(option, value)
        case "number":
            return _is_number(value) and _in_range(option, value)
        case "bool":
            return isinstance(value, bool)
        case "auto":
            return isinstance(value, bool) or value == "auto"
        case "choice":
            return value in option.choices
        case "betas":
            return len(_items(value)) == 2 and all(
                _is_number(item) and 0 <= _number(item) < 1 for item in _items(value)
            )
        case "pair":
            return _accepts_ints(option, value) and len(_items(value)) in (0, 2)
        case "sizes" | "axes":
            return _accepts_ints(option, value) and (_is_int(value) or len(_items(value)) > 0)
        case "shape":
            rest = _items(value)[1:] if _items(value)[:1] in ([BATCH], (BATCH,)) else value
            return _accepts_ints(option, rest) and (_is_int(value) or len(_items(value)) > 0)
        case "subscript" | "equation":
            return not find_remedy(option, value)
        case _:
            assert_never(option.kind)


def find_remedy(option: Option, value: object) -> str:
    """Return what to write instead of a value, where its kind says so; nothing for a value that the option takes."""
    try:
        if option.kind == "subscript":
            read_subscript(value)
        if option.kind == "equation":
            read_equation(value)
    except (SubscriptError, EquationError) as error:
        return str(error)
    return ""


def describe_option(option: Option) -> str:
    """Return what an option takes, for the end of `expected`."""
    match option.kind:
        case "int" | "index":
            return f"a whole number{_describe_range(option)}"
        case "number":
            return f"a number{_describe_range(option)}"
        case "bool":
            return "true or false"
        case "auto":
            return "auto, true or false"
        case "choice":
            return f"one of {', '.join(option.choices)}"
        case "betas":
            return "two numbers from 0 to less than 1, as in [0.9, 0.999]"
        case "pair":
            return f"a whole number{_describe_range(option)}, or two of them: [height, width]"
        case "sizes" | "axes":
            return "a whole number or a list of them"
        case "shape":
            return "a whole number or a list of them, the first of which may be `batch`"
        case "subscript":
            return "integers, slices and `None`, as in `:, 0` or `1:, None`"
        case "equation":
            return "an equation, as in `bi,ij->bj`"
        case _:
            assert_never(option.kind)


def _items(value: object) -> Sequence[object]:
    return cast("Sequence[object]", value) if isinstance(value, list | tuple) else ()


def _accepts_ints(option: Option, value: object) -> bool:
    """Return whether a value is a whole number, or a list of them, within the range."""
    is_list = isinstance(value, list | tuple)
    items = _items(cast("object", value)) if is_list else (value,)
    return all(_is_int(item) and _in_range(option, item) for item in items)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _in_range(option: Option, value: object) -> bool:
    number = _number(value)
    return (
        (option.minimum is None or number >= option.minimum)
        and (option.maximum is None or number <= option.maximum)
        and (option.above is None or number > option.above)
        and (option.below is None or number < option.below)
    )


def _describe_range(option: Option) -> str:
    low = "" if option.minimum is None else f" from {option.minimum:g}"
    low = low if option.above is None else f" greater than {option.above:g}"
    high = "" if option.maximum is None else f" to {option.maximum:g}"
    high = high if option.below is None else f"{' to' if low else ''} less than {option.below:g}"
    return f"{low}{high}" if high or not low.startswith(" from") else f"{low} up"
