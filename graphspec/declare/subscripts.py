"""Subscripts: what stands between the brackets of ``x[...]``, read from a text once and kept in one form."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TypeAlias

_INDEX = r"-?[0-9]{1,18}"
_STEP = r"[1-9][0-9]{0,17}"
_SLICE = re.compile(rf"({_INDEX})?\s*:\s*({_INDEX})?(?:\s*:\s*({_STEP})?)?")
_PLACE = rf"(?:None|(?:{_INDEX})?\s*:\s*(?:{_INDEX})?(?:\s*:\s*(?:{_STEP})?)?|{_INDEX})"
SUBSCRIPT_PATTERN = rf"^\s*{_PLACE}(?:\s*,\s*{_PLACE})*\s*$"
"""Integers, slices ``start:stop:step`` with a step from 1 up, and ``None``, between commas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """``start:stop:step``: each step-th element from ``start`` up to, not including, ``stop``; by default all.

    Negative ones count from the end.
    """

    start: int = 0
    stop: int | None = None
    step: int = 1

    def __str__(self) -> str:
        """Return it as Python writes it, without what changes nothing."""
        stop = "" if self.stop is None else self.stop
        return f"{self.start or ''}:{stop}" + (f":{self.step}" if self.step > 1 else "")


Place: TypeAlias = int | Slice | None
"""An index, which removes its axis; a slice of an axis; or None, a new axis of size 1."""
WHOLE = Slice()


@dataclass(frozen=True, slots=True)
class Subscript:
    """What stands between the brackets; axes after the last place stay as they are."""

    places: tuple[Place, ...]

    def __str__(self) -> str:
        """Return ``[:, 0]``."""
        return f"[{', '.join(map(str, self.places))}]"

    @property
    def taken(self) -> tuple[int | Slice, ...]:
        """Return the indices and slices, one for each of the leading axes."""
        return tuple(place for place in self.places if place is not None)

    def at(self, axis: int) -> int | Slice:
        """Return what is taken along an axis, counted from 0."""
        return self.taken[axis] if axis < len(self.taken) else WHOLE


class SubscriptError(ValueError):
    """A text that is no subscript; the message says what to write."""


def read_subscript(written: object) -> Subscript:
    """Return the subscript that a text, or an integer alone, means; raise :class:`SubscriptError`."""
    if isinstance(written, bool) or not isinstance(written, str | int):
        raise SubscriptError('write it as a text: `at: ":, 0"`')
    return Subscript(tuple(_read_place(part.strip()) for part in str(written).split(",")))


def _read_place(text: str) -> Place:
    if text == "None":
        return None
    if re.fullmatch(_INDEX, text):
        return int(text)
    found = _SLICE.fullmatch(text)
    if found is not None:
        start, stop, step = (None if part is None else int(part) for part in found.groups())
        return Slice(start=start or 0, stop=stop, step=step or 1)
    if not text:
        raise SubscriptError("write an integer, a slice or `None` between each two commas")
    if text == "...":
        raise SubscriptError("write a `:` for each axis in place of `...`")
    if re.fullmatch(r"[-0-9\s:]*", text):
        raise SubscriptError("write integers of at most 18 digits, and slices `start:stop:step` with a step from 1 up")
    raise SubscriptError("for indices that are values, write `call: gather`; for a mask, `call: where`")
