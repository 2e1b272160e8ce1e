"""Parts: the iterations of a `repeat` and the alternatives of a `choose`, as facts of the ops that belong to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, Strict, model_validator

from graphspec.declare.base import Declaration, problem
from graphspec.declare.fields import Count, Share


class Part(Declaration):
    """One iteration of an op that repeats its ops, or one alternative of an op that chooses between some."""

    repeat: str | None = None
    """The op that repeats; or"""
    choose: str | None = None
    """the op that chooses."""
    number: Count
    """Which iteration or alternative, from 1."""
    count: Count
    """How many there are at most."""
    start: Count | None = None
    """The step from which on there is this iteration, where their number changes."""
    until: Annotated[int, Strict(), Field(ge=0)] | None = None
    """The step up to which there is this iteration."""
    low: Share | None = None
    """The alternative runs in the steps whose number, drawn from 0 to 1, is at least this,"""
    high: Share | None = None
    """and less than this."""

    @model_validator(mode="after")
    def _check(self) -> Part:
        is_drawn = self.low is not None and self.high is not None
        if (self.repeat is None) == (self.choose is None) or is_drawn == (self.choose is None):
            help = "`repeat` and `choose` write it: leave it out"
            raise problem("GS044", "a part is an iteration, or an alternative with its share of the steps", help=help)
        return self

    @property
    def of(self) -> str:
        """Return the op that it is a part of."""
        return self.repeat or self.choose or ""

    @property
    def name(self) -> str:
        """Return its name, with which those of its ops begin, and which its gate has: `critic.2`."""
        return f"{self.of}.{self.number}"

    @property
    def is_gated(self) -> bool:
        """Return whether there are steps without it."""
        return self.choose is not None or self.start is not None or self.until is not None

    def __str__(self) -> str:
        """Return it in words: `iteration 2 of 5 of critic`."""
        noun = "iteration" if self.repeat is not None else "alternative"
        return f"{noun} {self.number} of {self.count} of {self.of}"


def comes_later(one: Sequence[Part], other: Sequence[Part]) -> bool:
    """Return whether what belongs to some parts is of a later iteration than what belongs to others.

    >>> first, second = (Part(repeat="critic", number=number, count=2) for number in (1, 2))
    >>> comes_later([second], [first]), comes_later([first], [second]), comes_later([second], [])
    (True, False, False)
    """
    for mine, yours in zip(one, other, strict=False):
        if mine.of != yours.of or mine.number != yours.number:
            return mine.repeat is not None and mine.repeat == yours.repeat and mine.number > yours.number
    return False


def is_inside(one: Sequence[Part], other: Sequence[Part]) -> bool:
    """Return whether what belongs to some parts is of the iterations that others are of; False where these are of none.

    >>> first, second = (Part(repeat="critic", number=number, count=2) for number in (1, 2))
    >>> half = Part(choose="critic.1.half", number=1, count=2, low=0.0, high=0.5)
    >>> is_inside([first, half], [first]), is_inside([first], [first, half]), is_inside([second], [first])
    (True, True, False)
    """
    inner = [part for part in one if part.repeat is not None]
    outer = [part for part in other if part.repeat is not None]
    return bool(outer) and inner[: len(outer)] == outer


def find_gate(parts: Sequence[Part]) -> Part | None:
    """Return the innermost part without which there are steps; None where there is none."""
    return next((each for each in reversed(parts) if each.is_gated), None)
