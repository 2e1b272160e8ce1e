"""Schedules: a number that changes with the applied updates of its optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from annotated_types import Gt
from pydantic import AllowInfNan, BeforeValidator, Field, Strict, model_validator

from graphspec.declaration import Declaration, not_built, problem
from graphspec.durations import Duration, parse_duration

ScheduleKind: TypeAlias = Literal["constant", "linear", "cosine", "polynomial", "exponential", "step", "warmup"]

FIELDS: Mapping[ScheduleKind, Mapping[str, float | None]] = {
    "constant": {"value": None},
    "linear": {"from": None, "to": 0.0, "over": None},
    "cosine": {"from": None, "to": 0.0, "over": None},
    "polynomial": {"from": None, "to": 0.0, "over": None, "power": 1.0},
    "exponential": {"from": None, "rate": None, "per": 1.0},
    "step": {"from": None, "factor": None, "every": None},
    "warmup": {"from": 0.0, "to": None, "over": None},
}
"""The fields of every kind with their defaults; None where the field must be written."""

NOT_BUILT = ("piecewise", "join")


def _updates(value: object) -> object:
    """Turn a duration in updates into their number."""
    if not isinstance(value, str | Duration):
        return value
    duration = parse_duration(value, bare="updates")
    if duration.unit != "updates":
        raise not_built(
            f"a schedule over {duration.unit}", help="count applied updates: write a number or `500 updates`"
        )
    return duration.count


def _kind(value: object) -> object:
    if value in NOT_BUILT:
        raise not_built(f"`schedule: {value}`", help=f"use one of {', '.join(FIELDS)}")
    return value


def _clock(value: object) -> object:
    if value in ("steps", "samples", "epochs"):
        raise not_built(
            f"`clock: {value}`", help="schedules count the applied updates of their optimizer; leave `clock` out"
        )
    return value


Finite = Annotated[float, Strict(), AllowInfNan(False)]
Updates = Annotated[float, Strict(), AllowInfNan(False), Gt(0), BeforeValidator(_updates)]


class ScheduleSpec(Declaration):
    """A schedule of one optimizer option; its clock is the number of updates applied, and the first use reads f(0)."""

    schedule: Annotated[ScheduleKind, BeforeValidator(_kind)]
    """The shape of the curve."""
    value: Finite | None = None
    """constant: the value."""
    from_: Finite | None = Field(None, alias="from")
    """The value at the first update."""
    to: Finite | None = None
    """The value after `over` updates, kept from then on."""
    over: Updates | None = None
    """How many updates the way from `from` to `to` takes."""
    power: Finite | None = None
    """polynomial: the exponent of the remaining share (default 1)."""
    rate: Finite | None = None
    """exponential: the factor gained every `per` updates."""
    per: Updates | None = None
    """exponential: how many updates one `rate` takes (default 1)."""
    factor: Finite | None = None
    """step: the factor gained every `every` updates."""
    every: Updates | None = None
    """step: how many updates pass between two drops."""
    clock: Annotated[Literal["updates"], BeforeValidator(_clock)] = "updates"
    """What the schedule counts: the applied updates of its optimizer."""

    @model_validator(mode="after")
    def _complete(self) -> ScheduleSpec:
        allowed, given = FIELDS[self.schedule], self._given()
        takes = f"`{self.schedule}` takes {', '.join(allowed)}"
        for name in given:
            if name not in allowed:
                raise problem("GS053", f"a {self.schedule} schedule has no `{name}`", help=takes)
        missing = [name for name, default in allowed.items() if default is None and name not in given]
        if missing:
            raise problem("GS053", f"a {self.schedule} schedule needs `{'`, `'.join(missing)}`", help=takes)
        return self

    def _given(self) -> dict[str, float]:
        """Return the numeric fields that are written, by their names in the language."""
        names = {"from": self.from_, "to": self.to, "value": self.value, "over": self.over, "power": self.power}
        names |= {"rate": self.rate, "per": self.per, "factor": self.factor, "every": self.every}
        return {name: value for name, value in names.items() if value is not None}

    @property
    def fields(self) -> Mapping[str, float]:
        """Return every numeric field of this kind with defaults resolved, by its name in the language."""
        given = self._given()
        defaults = {name: value for name, value in FIELDS[self.schedule].items() if value is not None}
        return {name: given[name] if name in given else defaults[name] for name in FIELDS[self.schedule]}
