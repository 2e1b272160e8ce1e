"""Schedules: a number that changes while training, and the clock it is read by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self, TypeAlias, cast

from pydantic import AfterValidator, Field, Strict, model_validator
from pydantic_core import PydanticCustomError

from graphspec.curves import CurveSpec
from graphspec.declaration import below, problem
from graphspec.durations import Duration, Length, LengthField
from graphspec.fields import at_least_one

Clock: TypeAlias = Literal["updates", "steps", "samples", "epochs"]


def _as_mapping(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


class PartSpec(CurveSpec):
    """One part of a join: a curve that lasts for a while."""

    for_: LengthField | None = Field(None, alias="for")
    """join: how long the part lasts (default: its `over`); the last part lasts for ever."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_whole(cls, value: object) -> object:
        """Refuse what only a whole schedule has."""
        written = _as_mapping(value)
        if written.get("schedule") == "join":
            help = "list its parts among those of the outer join"
            raise problem("GS053", "a join has no join among its parts", help=help)
        if "clock" in written:
            help = "write `clock` beside `parts`"
            raise below(("clock",), problem("GS053", "all parts of a join have one clock", help=help, at="key"))
        return value

    @property
    def length(self) -> Length | None:
        """Return how long the part lasts before another follows; None where it does not say so."""
        return self.over if self.for_ is None else self.for_

    @property
    def begin(self) -> float | None:
        """Return the value that the part begins with, None where it leaves that out."""
        first = self.fields.get("value", self.fields.get("from"))
        return self.moments[0][1] if self.moments else first if isinstance(first, float) else None

    @property
    def end(self) -> float | None:
        """Return the value with which the part is over, None where that cannot be read off its fields."""
        last = self.fields.get("value", self.fields.get("to"))
        return last if isinstance(last, float) and (self.over is None or self._goes_all_the_way(self.over)) else None

    def _goes_all_the_way(self, over: Length) -> bool:
        """Return whether the part lasts its whole `over`, as far as that can be seen."""
        length = self.length
        if isinstance(length, Duration) and isinstance(over, Duration):
            return length.unit == over.unit and length.count >= over.count
        return not isinstance(length, Duration | None) and not isinstance(over, Duration) and length >= over


def _check_lengths(parts: tuple[PartSpec, ...]) -> tuple[PartSpec, ...]:
    """Refuse a part without an end before another, and an end of the last one."""
    for index, part in enumerate(parts[:-1]):
        if part.length is None:
            message = f"a part of a join lasts as long as its `over` or `for`; this {part.schedule} has neither"
            raise below((index,), problem("GS053", message, help="write `for: 1000`, or make it the last part"))
    if parts and parts[-1].for_ is not None:
        error = problem(
            "GS053",
            "the last part of a join lasts for ever",
            help="take `for` away, or add the part that follows",
            at="key",
        )
        raise below((len(parts) - 1, "for"), error)
    return parts


Parts = Annotated[tuple[PartSpec, ...], Strict(False), at_least_one("part"), AfterValidator(_check_lengths)]


class ScheduleSpec(CurveSpec):
    """A schedule: a curve, or several joined, of what a clock counts; the first use reads it at 0."""

    parts: Parts | None = None
    """join: curves one after another; each starts its own count at 0 when the one before it is over."""
    clock: Clock = "updates"
    """What is counted: applied updates of the optimizer, steps made, their samples, or finished epochs; by default the
    updates where an optimizer is near, in its options and groups, and in what clips, constrains or regularizes for it,
    and steps elsewhere."""

    def close(self, value: float | None, place: tuple[str, ...] = ()) -> Self:
        """Return the schedule with the values that it leaves out.

        A part of a join goes on from the end of the one before it, and a warmup leads to the beginning of the one
        behind it; where no neighbour says it, and without parts, it is the given value. Raises a validation error with
        code GS053, below a place, where there is none, or where a neighbour ends at what only a clock tells.
        """
        parts: list[PartSpec] = []
        try:
            if self.parts is None:
                return super().close(value)
            for index, part in enumerate(self.parts):
                parts.append(part.close(self._find_neighbour(index, parts, value)))
        except PydanticCustomError as error:
            raise below(place if self.parts is None else (*place, "parts", len(parts)), error) from error
        return self.model_copy(update={"parts": tuple(parts)}) if any(each.is_open for each in self.parts) else self

    def _find_neighbour(self, index: int, before: Sequence[PartSpec], value: float | None) -> float | None:
        """Return what stands for a value that a part leaves out, given the parts before it."""
        kind = (self.parts or ())[index].schedule
        if before and kind != "warmup":
            return before[-1].end
        for part in (self.parts or ())[index + 1 :] if kind in ("warmup", "constant") else ():
            if part.begin is not None or part.schedule != "constant":
                return value if part.begin is None else part.begin
        return value

    def written(self) -> Mapping[str, object]:
        """Return the fields that are written, by their names in the language."""
        return super().written() if self.parts is None else {**super().written(), "parts": self.parts}
