"""Durations: ``100 steps``, ``3 epochs``, ``500 updates``, ``1M samples``, ``0.1 run``, and Composer's ``10ba``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Annotated, Literal, TypeAlias

from pydantic import PlainSerializer, WithJsonSchema

from graphspec.declare.base import Reader, problem
from graphspec.words import describe, did_you_mean

Unit: TypeAlias = Literal["steps", "updates", "samples", "epochs", "run"]

FORMS = "`100 steps`, `3 epochs`, `500 updates`, `1M samples`, `0.1 run`, `10ba`, `3ep`, `0.1dur` or a whole number"
PATTERN = r"^\s*([0-9]+(?:\.[0-9]+)?(?:[eE][0-9]+)?)\s*([kKM]?)\s*([A-Za-z]+)\s*$"

_PATTERN = re.compile(PATTERN)
_SCALES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6}
_UNITS: dict[str, Unit] = {
    "step": "steps",
    "steps": "steps",
    "ba": "steps",
    "update": "updates",
    "updates": "updates",
    "sample": "samples",
    "samples": "samples",
    "sp": "samples",
    "epoch": "epochs",
    "epochs": "epochs",
    "ep": "epochs",
    "run": "run",
    "dur": "run",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """A length of training: ``count`` of a ``unit``; steps, updates and samples are whole, ``run`` is a share of it."""

    count: float
    unit: Unit

    def __str__(self) -> str:
        """Return the canonical spelling, which :func:`parse_duration` reads back."""
        whole = float(self.count).is_integer()
        return f"{int(self.count) if whole else format(Decimal(repr(self.count)), 'f')} {self.unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start(Duration):
    """When an average begins, and what it is before that: it stays as it is (hold), or is a copy of its source."""

    before: Literal["hold", "copy"] = "hold"


def parse_duration(value: object, *, bare: Unit = "steps") -> Duration:
    """Return the duration a document's scalar spells; a whole number alone counts ``bare`` units.

    Raises a validation error with code GS050 for anything else, and for counts that no clock reaches.
    """
    if isinstance(value, Duration):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        count, unit, text = value, bare, str(value)
    else:
        matched = _PATTERN.match(value) if isinstance(value, str) else None
        if matched is None:
            raise problem("GS050", f"expected a duration, found {describe(value)}", help=f"write {FORMS}")
        word, text = matched.group(3), matched.group(0).strip()
        if word not in _UNITS:
            label = did_you_mean(word, ("steps", "updates", "samples", "epochs", "run"))
            raise problem("GS050", f"'{word}' is not a unit of durations", label=label, help=f"write {FORMS}")
        count, unit = float(matched.group(1)) * _SCALES[matched.group(2)], _UNITS[word]
    if count <= 0:
        raise problem("GS050", f"a duration must be greater than 0, found {text!r}", help="steps are counted from 1")
    if unit == "run" and count > 1:
        raise problem(
            "GS050", f"a fraction of the run is at most 1, found {text!r}", help="`0.1 run` is its first tenth"
        )
    if unit not in ("run", "epochs") and not float(count).is_integer():
        raise problem("GS050", f"{unit} are counted in whole numbers, found {text!r}", help=f"write {FORMS}")
    return Duration(count=count, unit=unit)


_TEXTS = ({"type": "string", "pattern": PATTERN}, {"type": "string", "pattern": r"\$\{"})
_REMARK = f"A duration: {FORMS}."
_JSON = {"anyOf": [{"type": "integer", "minimum": 1}, *_TEXTS], "description": _REMARK}

DurationField = Annotated[Duration, Reader(parse_duration), PlainSerializer(str), WithJsonSchema(_JSON)]
"""A duration; a whole number counts steps."""

UpdatesField = Annotated[
    Duration, Reader(partial(parse_duration, bare="updates")), PlainSerializer(str), WithJsonSchema(_JSON)
]
"""A duration; a whole number counts applied updates."""

Length: TypeAlias = float | Duration
"""A part of a schedule's way: a number counts what its clock counts."""


def _length(value: object) -> Length:
    """Read a number of ticks, or a duration."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return parse_duration(value)
    if not math.isfinite(value) or value <= 0:
        raise problem("GS044", f"expected a number greater than 0, or a duration, found {describe(value)}")
    return value


_NUMBER = {"type": "number", "exclusiveMinimum": 0}

LengthField = Annotated[
    float | Duration,
    Reader(_length),
    PlainSerializer(lambda length: str(length) if isinstance(length, Duration) else length),
    WithJsonSchema({"anyOf": [_NUMBER, *_TEXTS], "description": _REMARK}),
]
"""A length of a schedule: a number of ticks of its clock, or a duration."""
