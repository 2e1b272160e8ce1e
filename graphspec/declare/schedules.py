"""Schedules: a number that changes while training, the clock it is read by, and fields that take one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal, Self, TypeAlias, cast

from annotated_types import Ge, Gt, Le
from pydantic import (
    AllowInfNan,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from graphspec.declare.base import Declaration, Deferred, Reader, below, problem
from graphspec.declare.durations import Duration, Length, LengthField, parse_duration
from graphspec.declare.fields import Keyword, at_least_one, is_schedule

if TYPE_CHECKING:
    from graphspec.read.source import Plain

ScheduleKind: TypeAlias = Literal[
    "constant", "linear", "cosine", "polynomial", "exponential", "step", "warmup", "piecewise", "join"
]

FIELDS: Mapping[ScheduleKind, Mapping[str, float | None]] = {
    "constant": {"value": None},
    "linear": {"from": None, "to": 0.0, "over": None},
    "cosine": {"from": None, "to": 0.0, "over": None},
    "polynomial": {"from": None, "to": 0.0, "over": None, "power": 1.0},
    "exponential": {"from": None, "rate": None, "per": 1},
    "step": {"from": None, "factor": None, "every": None},
    "warmup": {"from": 0.0, "to": None, "over": None},
    "piecewise": {"at": None},
    "join": {"parts": None},
}
"""The fields of every kind with their defaults; None where the field must be written."""

OPEN: Mapping[ScheduleKind, Literal["from", "to", "value"]] = {
    "constant": "value",
    "linear": "from",
    "cosine": "from",
    "polynomial": "from",
    "exponential": "from",
    "step": "from",
    "warmup": "to",
}
"""The field of a kind that may be left out where something else says the number: see :func:`close`."""

LENGTHS = ("over", "per", "every")
"""The fields that say how long something is; the others are values."""

Finite = Annotated[float, Strict(), AllowInfNan(False)]

_ZERO = re.compile(r"0(\s*[A-Za-z]+)?")


def parse_moment(key: str) -> Length:
    """Return a moment that a key spells: a number of ticks, a duration, or 0 in any unit.

    Raises a validation error with code GS050 for anything else.
    """
    if _ZERO.fullmatch(key.strip()):
        return 0
    return int(key) if key.isdecimal() else parse_duration(key)


def _lasts(length: Length, other: Length) -> bool:
    """Return whether a length is at least another of its unit; False where their units cannot be compared."""
    if isinstance(length, Duration) and isinstance(other, Duration):
        return length.unit == other.unit and length.count >= other.count
    return not isinstance(length, Duration) and not isinstance(other, Duration) and length >= other


def _attribute(name: str) -> str:
    """Return what a field of the language is called in Python."""
    return "from_" if name == "from" else name


class CurveSpec(Declaration):
    """One curve: a number that changes with n, which is 0 at the first use."""

    schedule: ScheduleKind
    """The shape of the curve."""
    value: Finite | None = None
    """constant: the value."""
    from_: Finite | None = Field(None, alias="from")
    """The value at n = 0."""
    to: Finite | None = None
    """The value after `over`, kept from then on."""
    over: LengthField | None = None
    """How long the way from `from` to `to` is."""
    power: Annotated[Finite, Gt(0)] | None = None
    """polynomial: the exponent of the remaining share (default 1)."""
    rate: Annotated[Finite, Gt(0)] | None = None
    """exponential: the factor gained within every `per`."""
    per: LengthField | None = None
    """exponential: how long one `rate` takes (default 1)."""
    factor: Annotated[Finite, Ge(0)] | None = None
    """step: the factor gained at every `every`."""
    every: LengthField | None = None
    """step: how long it is from one drop to the next."""
    at: dict[str, Finite] | None = None
    """piecewise: the values, each by the moment from which on it holds: `{0: 0.1, 30 epochs: 0.01}`."""

    @field_validator("at")
    @classmethod
    def _check_moments(cls, at: dict[str, float] | None) -> dict[str, float] | None:
        """Refuse moments that are none, that do not begin with 0, or that are in no order."""
        if at is None:
            return None
        before: Length | None = None
        for key in at:
            try:
                moment = parse_moment(key)
            except PydanticCustomError as error:
                context = error.context or {}
                help, label = str(context.get("help", "")), str(context.get("label", ""))
                raise below((key,), problem("GS050", error.message(), help=help, label=label, at="key")) from error
            if before is None and moment != 0:
                message = f"a piecewise schedule begins at 0, found `{key}` first"
                raise below((key,), problem("GS053", message, help="say what holds from the start: `0: 0.1`", at="key"))
            # Moments in different units are left to the compiler.
            if before is not None and _lasts(before, moment):
                message = f"the moments of a piecewise schedule rise, found `{key}` after one that is not earlier"
                raise below((key,), problem("GS053", message, help="put the earlier moment first", at="key"))
            before = moment
        if before is None:
            help = "write `at: {0: 0.1, 1000: 0.01}`"
            raise problem("GS053", "a piecewise schedule has at least one value", help=help)
        return at

    @model_validator(mode="after")
    def _complete(self) -> CurveSpec:
        """Refuse fields of other kinds, and a kind without its fields."""
        kind, allowed, given = self.schedule, FIELDS[self.schedule], self.written()
        for name in given:
            if name not in allowed:
                raise problem("GS053", f"a {kind} schedule has no `{name}`", help=self._takes())
        missing = [name for name, default in allowed.items() if default is None and name not in given]
        if set(missing) - {OPEN.get(kind)}:
            raise self._needs(missing)
        return self

    def _needs(self, missing: Sequence[str]) -> PydanticCustomError:
        """Return the problem of a curve without some of its fields."""
        return problem("GS053", f"a {self.schedule} schedule needs `{'`, `'.join(missing)}`", help=self._takes())

    def _takes(self) -> str:
        return f"`{self.schedule}` takes {', '.join(FIELDS[self.schedule])}"

    @property
    def is_open(self) -> bool:
        """Return whether a value is left out that has no default."""
        return self.schedule in OPEN and OPEN[self.schedule] not in self.written()

    def close(self, value: float | None) -> Self:
        """Return the curve with the value that it leaves out; it still does not count as written.

        Raises a validation error with code GS053 where a value is left out and there is none.
        """
        if not self.is_open:
            return self
        name = OPEN[self.schedule]
        if value is None:
            raise self._needs([name])
        closed = self.model_copy(update={_attribute(name): float(value)})
        closed.model_fields_set.discard(_attribute(name))
        return closed

    def written(self) -> Mapping[str, object]:
        """Return the fields of the curve that are written, by their names in the language."""
        names: dict[str, object] = {"from": self.from_, "to": self.to, "value": self.value, "over": self.over}
        names |= {"power": self.power, "rate": self.rate, "per": self.per, "factor": self.factor}
        names |= {"every": self.every, "at": self.at}
        return {name: value for name, value in names.items() if value is not None}

    @property
    def fields(self) -> Mapping[str, Length]:
        """Return every number of this kind with defaults resolved, by its name in the language; none of piecewise."""
        given = self.written()
        found = {name: given.get(name, default) for name, default in FIELDS[self.schedule].items()}
        return {name: value for name, value in found.items() if isinstance(value, int | float | Duration)}

    @property
    def values(self) -> Mapping[tuple[str, ...], float]:
        """Return the values that the curve begins with, ends with or takes, by the keys that give them.

        That of a default is there too, by the key that is left out, but not what :meth:`close` has filled in.
        """
        given = self.fields
        named: Mapping[str, object] = {name: given.get(name) for name in ("value", "from", "to")}
        closed = OPEN.get(self.schedule)
        if closed is not None and _attribute(closed) not in self.model_fields_set:
            named = {name: value for name, value in named.items() if name != closed}
        found = {(name,): value for name, value in named.items() if isinstance(value, int | float)}
        found |= {("at", key): value for key, value in (self.at or {}).items()}
        return found | ({("factor",): 0.0} if self.factor == 0 else {})

    @property
    def moments(self) -> tuple[tuple[Length, float], ...]:
        """Return the values of a piecewise schedule with their moments, the first at 0."""
        return tuple((parse_moment(key), value) for key, value in (self.at or {}).items())


Clock: TypeAlias = Literal["updates", "steps", "samples", "epochs"]


class PartSpec(CurveSpec):
    """One part of a join: a curve that lasts for a while."""

    for_: LengthField | None = Field(None, alias="for")
    """join: how long the part lasts (default: its `over`); the last part never ends."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_whole(cls, value: object) -> object:
        """Refuse what only a whole schedule has."""
        written = cast("dict[str, object]", value) if isinstance(value, dict) else {}
        if written.get("schedule") == "join":
            help = "list its parts among those of the outer join"
            raise problem("GS053", "a join has no join among its parts", help=help)
        if "clock" in written:
            help = "write `clock` next to `parts`"
            raise below(("clock",), problem("GS053", "all parts of a join have one clock", help=help, at="key"))
        return cast("object", value)

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
        is_whole = self.over is None or (self.length is not None and _lasts(self.length, self.over))
        return last if isinstance(last, float) and is_whole else None


class ScheduleSpec(CurveSpec):
    """A schedule: a curve, or several joined, of what a clock counts; the first use reads it at 0."""

    parts: Annotated[tuple[Deferred[PartSpec], ...], Strict(False), at_least_one("part")] | None = None
    """join: curves one after another; each starts its own count at 0 when the one before it is over."""
    clock: Clock = "updates"
    """What is counted: applied updates of the optimizer, steps made, their samples, or finished epochs; by default the
    updates where an optimizer is near, in its options and groups, and in what clips, constrains or regularizes for it,
    and steps elsewhere."""

    @field_validator("parts")
    @classmethod
    def _check_lengths(cls, parts: tuple[PartSpec, ...] | None) -> tuple[PartSpec, ...] | None:
        """Refuse a part without an end before another, and an end of the last one."""
        for index, part in enumerate(parts[:-1] if parts else ()):
            if part.length is None:
                message = f"a part of a join lasts as long as its `over` or `for`; this {part.schedule} has neither"
                raise below((index,), problem("GS053", message, help="write `for: 1000`, or make it the last part"))
        if parts and parts[-1].for_ is not None:
            help = "remove `for`, or add the part that follows"
            error = problem("GS053", "the last part of a join never ends", help=help, at="key")
            raise below((len(parts) - 1, "for"), error)
        return parts

    def close(self, value: float | None, place: tuple[str, ...] = ()) -> Self:
        """Return the schedule with the values that it leaves out.

        A part of a join continues from the end of the previous one, and a warmup leads to the beginning of the next;
        where no neighbour gives the value, and without parts, it is the given one. Raises a validation error with
        code GS053, below a place, where there is none, or where the end of a neighbour depends on the clock.
        """
        parts: list[PartSpec] = []
        try:
            if self.parts is None:
                return super().close(value)
            for index, part in enumerate(self.parts):
                given = value
                if parts and part.schedule != "warmup":
                    given = parts[-1].end
                elif part.schedule in ("warmup", "constant"):
                    # Constants that leave their own values out are passed over.
                    rest = self.parts[index + 1 :]
                    begins = (each.begin for each in rest if each.begin is not None or each.schedule != "constant")
                    begin = next(begins, None)
                    given = value if begin is None else begin
                parts.append(part.close(given))
        except PydanticCustomError as error:
            raise below(place if self.parts is None else (*place, "parts", len(parts)), error) from error
        return self.model_copy(update={"parts": tuple(parts)}) if any(each.is_open for each in self.parts) else self

    def written(self) -> Mapping[str, object]:
        """Return the fields that are written, by their names in the language."""
        return super().written() if self.parts is None else {**super().written(), "parts": self.parts}


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


def _scheduled(plain: TypeAdapter[float], form: object, read: Read = read_schedule) -> Reader:
    """Return what reads a number of a kind, or a schedule whose values are such numbers.

    What is wrong with a value of a schedule is a problem of its place, or (GS053) of the schedule that leaves it out.
    """
    bounds = {"gt": "is greater than", "ge": "is at least", "lt": "is less than", "le": "is at most"}

    def validate(value: object) -> float | ScheduleSpec:
        """Return the number or the schedule."""
        schedule = value if isinstance(value, ScheduleSpec) else read(value)
        if schedule is None:
            return plain.validate_python(value)
        for taken in find_values(schedule):
            try:
                plain.validate_python(taken.number)
            except ValidationError as error:
                detail = error.errors()[0]
                context = detail.get("ctx", {})
                if taken.left_out:
                    limits = (f"{bounds[key]} {limit:g}" for key, limit in context.items() if key in bounds)
                    message = f"{taken.origin}, and this number does not take it"
                    help = f"write `{taken.left_out}`, as a number that {' and '.join(limits)}"
                    raise below(taken.place, problem("GS053", message, help=help)) from error
                found = InitErrorDetails(type=detail["type"], loc=taken.place, input=taken.number, ctx=context)
                raise ValidationError.from_exception_data("spec", [found]) from error
        return schedule

    return Reader(validate, form)


_Positive = Annotated[Finite, Gt(0)]
_Share = Annotated[Finite, Ge(0), Le(1)]
_FromZero = Annotated[Finite, Ge(0)]

_LATE = ConfigDict(defer_build=True)
_FINITE: TypeAdapter[float] = TypeAdapter(Finite, config=_LATE)

NUMBER = _scheduled(_FINITE, Finite | ScheduleSpec)
ScheduledNumber = Annotated[float | ScheduleSpec, NUMBER]
"""A finite number, or a schedule of train steps."""

SHARE = _scheduled(TypeAdapter(_Share, config=_LATE), _Share | ScheduleSpec)
ScheduledShare = Annotated[float | ScheduleSpec, SHARE]
"""A number from 0 to 1, or a schedule of train steps."""

OwnPositive = Annotated[
    float | ScheduleSpec, _scheduled(TypeAdapter(_Positive, config=_LATE), _Positive | ScheduleSpec, read_own_schedule)
]
"""A number greater than 0, or a schedule of an optimizer's updates."""

OwnFromZero = Annotated[
    float | ScheduleSpec, _scheduled(TypeAdapter(_FromZero, config=_LATE), _FromZero | ScheduleSpec, read_own_schedule)
]
"""A number that is not negative, or a schedule of an optimizer's updates."""

OwnNumber = Annotated[float | ScheduleSpec, _scheduled(_FINITE, Finite | ScheduleSpec, read_own_schedule)]
"""A finite number, or a schedule of an optimizer's updates."""


if TYPE_CHECKING:
    ArgValue: TypeAlias = Plain | ScheduleSpec
else:
    ArgValue = object  # a document's reader makes plain values only

ScheduledArgs = dict[Keyword, Annotated[ArgValue, BeforeValidator(lambda value: read_schedule(value) or value)]]
"""Keyword arguments: plain values, and schedules of train steps."""
