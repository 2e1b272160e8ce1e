"""Scheduled fields: numbers of ops, each a plain one or a schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeAlias, cast

from annotated_types import Ge, Gt, Le
from pydantic import BeforeValidator, PlainValidator, TypeAdapter, ValidationError
from pydantic_core import InitErrorDetails

from graphspec.declare.base import below, problem
from graphspec.declare.fields import Keyword, is_schedule
from graphspec.declare.schedules import CurveSpec, Finite, ScheduleSpec

if TYPE_CHECKING:
    from graphspec.read.source import Plain

    ArgValue: TypeAlias = Plain | ScheduleSpec
else:
    ArgValue = object  # a document's reader makes plain values only

Read: TypeAlias = Callable[[object], ScheduleSpec | None]


def read_schedule(value: object) -> ScheduleSpec | None:
    """Return the schedule that a mapping with a `schedule` declares, None for anything else.

    It counts train steps where it names no clock. Raises a validation error with code GS053 for the clock `updates`:
    only an optimizer applies updates.
    """
    if not is_schedule(value):
        return None
    written = cast("dict[str, object]", value)
    if written.get("clock") == "updates":
        message = "`clock: updates` counts those of an optimizer, and this number belongs to none"
        raise below(("clock",), problem("GS053", message, help="leave `clock` out: train steps are counted then"))
    return ScheduleSpec.model_validate({"clock": "steps", **written}).close(None)


def read_own_schedule(value: object) -> ScheduleSpec | None:
    """Return a schedule likewise, but one that counts an optimizer's updates where it names no clock."""
    return ScheduleSpec.model_validate(value).close(None) if is_schedule(value) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenValue:
    """A value that a schedule begins with, ends with or takes."""

    number: float
    place: tuple[str | int, ...]
    """Where it is written below the schedule; where it is a default, the curve that leaves it out."""
    left_out: str = ""
    """The key that is left out."""
    kind: str
    """The shape of the curve."""

    @property
    def origin(self) -> str:
        """Return in words where a number comes from that the spec does not write."""
        return f"`{self.left_out}` of a {self.kind} schedule is {self.number:g} unless it is written"


def find_values(schedule: ScheduleSpec) -> Iterator[TakenValue]:
    """Yield every value that a schedule begins with, ends with or takes, those of defaults too."""
    curves: list[tuple[CurveSpec, tuple[str | int, ...]]] = [(schedule, ())]
    curves.extend((part, ("parts", index)) for index, part in enumerate(schedule.parts or ()))
    for curve, place in curves:
        written = curve.written()
        for key, number in curve.values.items():
            if key[0] in written:
                yield TakenValue(number=number, place=(*place, *key), kind=curve.schedule)
            else:
                yield TakenValue(number=number, place=place, left_out=key[0], kind=curve.schedule)


def _scheduled(plain: TypeAdapter[float], form: object, read: Read = read_schedule) -> PlainValidator:
    """Return the validator of a number of a kind, or of a schedule whose values are such numbers."""

    def _validate(value: object) -> float | ScheduleSpec:
        schedule = value if isinstance(value, ScheduleSpec) else read(value)
        if schedule is None:
            return plain.validate_python(value)
        for value in find_values(schedule):
            _check_value(plain, value)
        return schedule

    return PlainValidator(_validate, json_schema_input_type=form)


def _check_value(plain: TypeAdapter[float], value: TakenValue) -> None:
    """Raise what is wrong with a value of a schedule as the problem of its place, or of the schedule (GS053)."""
    try:
        plain.validate_python(value.number)
    except ValidationError as error:
        detail = error.errors()[0]
        if value.left_out:
            message = f"{value.origin}, and this number does not take it"
            help = f"write `{value.left_out}`, as a number that {_describe_bounds(detail.get('ctx', {}))}"
            raise below(value.place, problem("GS053", message, help=help)) from error
        found = InitErrorDetails(type=detail["type"], loc=value.place, input=value.number, ctx=detail.get("ctx", {}))
        raise ValidationError.from_exception_data("spec", [found]) from error


def _describe_bounds(context: Mapping[str, object]) -> str:
    """Return what a number is that pydantic has refused, by the bound that it broke."""
    words = {"gt": "is greater than", "ge": "is at least", "lt": "is less than", "le": "is at most"}
    return " and ".join(f"{words[bound]} {limit:g}" for bound, limit in context.items() if bound in words)


_Positive = Annotated[Finite, Gt(0)]
_Share = Annotated[Finite, Ge(0), Le(1)]
_FromZero = Annotated[Finite, Ge(0)]

ScheduledNumber = Annotated[float | ScheduleSpec, _scheduled(TypeAdapter(Finite), Finite | ScheduleSpec)]
"""A finite number, or a schedule of train steps."""

ScheduledShare = Annotated[float | ScheduleSpec, _scheduled(TypeAdapter(_Share), _Share | ScheduleSpec)]
"""A number from 0 to 1, or a schedule of train steps."""

OwnPositive = Annotated[
    float | ScheduleSpec, _scheduled(TypeAdapter(_Positive), _Positive | ScheduleSpec, read_own_schedule)
]
"""A number greater than 0, or a schedule of an optimizer's updates."""

OwnFromZero = Annotated[
    float | ScheduleSpec, _scheduled(TypeAdapter(_FromZero), _FromZero | ScheduleSpec, read_own_schedule)
]
"""A number that is not negative, or a schedule of an optimizer's updates."""

OwnNumber = Annotated[float | ScheduleSpec, _scheduled(TypeAdapter(Finite), Finite | ScheduleSpec, read_own_schedule)]
"""A finite number, or a schedule of an optimizer's updates."""


def _read_arg(value: object) -> object:
    """Return an argument: a schedule as its declaration, anything else unchanged."""
    return read_schedule(value) or value


ScheduledArgs = dict[Keyword, Annotated[ArgValue, BeforeValidator(_read_arg)]]
"""Keyword arguments: plain values, and schedules of train steps."""
