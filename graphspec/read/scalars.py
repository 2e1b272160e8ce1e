"""Plain scalars by the core schema of YAML 1.2: ``1e-3`` is a number, ``no`` is a string, ``0777`` is 777."""

from __future__ import annotations

import math
import re
from typing import TypeAlias

Scalar: TypeAlias = None | bool | int | float | str

LARGEST = 2**64 - 1
SMALLEST = -(2**63)

_WORDS: dict[str, None | bool | float] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **{sign + word: math.inf for sign in ("", "+") for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_FIRST_OF_NUMBER = frozenset("+-.0123456789")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_PREFIXED = re.compile(r"0(?:o[0-7]+|x[0-9a-fA-F]+)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_DIGITS = len(str(LARGEST))


class OutOfRangeError(ValueError):
    """A number does not fit: an integer of more than 64 bits, or a float that would become infinite."""


def resolve(text: str) -> Scalar:
    """Return the value of a plain scalar; raise OutOfRangeError where it is a number too large to hold."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _FIRST_OF_NUMBER:
        return text
    if _INTEGER.fullmatch(text):
        return _integer(text)
    if _FLOAT.fullmatch(text):
        return _float(text)
    if _PREFIXED.fullmatch(text):
        return _checked(int(text, 0))
    return text


def number(text: str) -> int | float:
    """Return the value of a JSON number; raise OutOfRangeError where it is too large to hold."""
    return _integer(text) if _INTEGER.fullmatch(text) else _float(text)


def _integer(text: str) -> int:
    """Convert only what can be in range: Python refuses very long strings of digits."""
    digits = text.lstrip("+-").lstrip("0") or "0"
    if len(digits) > _DIGITS:
        raise OutOfRangeError(text)
    return _checked(-int(digits) if text[0] == "-" else int(digits))


def _checked(value: int) -> int:
    if not SMALLEST <= value <= LARGEST:
        raise OutOfRangeError(str(value))
    return value


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise OutOfRangeError(text)
    return value
