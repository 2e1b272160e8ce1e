"""``schedule``: a number that changes while training, as a value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, cast

from pydantic import Field, model_validator

from graphspec.declare.base import below, problem
from graphspec.declare.ops.base import OpBase, Reference
from graphspec.declare.schedules import FIELDS, ScheduleSpec, read_schedule

CURVE = ("schedule", "clock", *dict.fromkeys(name for fields in FIELDS.values() for name in fields))
"""The keys of the op that say what the schedule is; `every` is that of a `step`."""


class ScheduleOp(OpBase):
    """Give the number of a schedule as a value without axes; its clock counts train steps unless it says otherwise."""

    curve: ScheduleSpec = Field(alias="schedule")
    """The schedule."""

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, value: object) -> object:
        """Gather what the schedule is made of; refuse what would let it rest, because it has a value in every step."""
        if not isinstance(value, dict):
            return value
        written = cast("dict[str, object]", value)
        if isinstance(written.get("schedule"), ScheduleSpec):
            return written
        for name in ("start", "until"):
            if name in written:
                help = "begin a `join` with a constant, or write the moments of a `piecewise`"
                raise below((name,), problem("GS053", f"a schedule has no `{name}`", help=help, at="key"))
        curve = read_schedule({key: item for key, item in written.items() if key in CURVE})
        return {**{key: item for key, item in written.items() if key not in CURVE}, "schedule": curve}

    @property
    def kind(self) -> Literal["schedule"]:
        """Return the key of this kind."""
        return "schedule"

    def operands(self) -> Iterator[Reference]:
        """Yield nothing: a schedule reads its clock alone."""
        yield from ()
