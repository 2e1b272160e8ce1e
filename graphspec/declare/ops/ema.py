"""``ema``: a running average of a model's weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, cast

from annotated_types import Ge
from pydantic import ValidationInfo, field_validator, model_validator

from graphspec.declare.base import Declaration, Deferred, Reader, below, problem
from graphspec.declare.decays import PLAIN, DecayField, DecaySpec
from graphspec.declare.durations import Duration, DurationField, Start, UpdatesField, parse_duration
from graphspec.declare.models import BufferPolicy
from graphspec.declare.ops.base import ModeName, OpBase, Reference
from graphspec.declare.parameters import Pattern
from graphspec.declare.schedules import FIELDS, ScheduledShare, ScheduleSpec


class WriteBackSpec(Declaration):
    """When a model takes the weights of its average."""

    every: Annotated[int, Ge(1)]
    """After how many writes of the model: a multiple of the `every` of the average."""


class UseSpec(Declaration):
    """Where the average stands in for the model."""

    eval: Literal["swap", "separate"] = "separate"
    """In modes other than train: the model's forwards run with the average once there is one (swap), or do not."""
    recompute_buffers: str | None = None
    """The data set from which BatchNorm's statistics of the average are computed anew before it is evaluated."""
    write_back: Deferred[WriteBackSpec] | None = None
    """After some writes the model itself takes the average's weights, right after the average is taken."""


class StartSpec(Declaration):
    """A start with what the average is before it."""

    at: DurationField
    """When the average begins, counted from 1."""
    before: Literal["hold", "copy"] = "hold"
    """Before that it stays as it is (hold), or becomes the source whenever it is due (copy)."""


StartField = Annotated[Duration, Reader(parse_duration, DurationField | StartSpec)]
"""When an average begins, perhaps with what it is before."""


UNDECIDED = ("interval_correction", "start", "init", "match", "exclude", "dtype", "rounding", "float_buffers")
"""What an average has no say in that an optimizer keeps."""


class EmaOp(OpBase):
    """Average a model's weights into another model, or into a hidden one named after the op."""

    default_modes: ClassVar[tuple[ModeName, ...]] = ("train",)

    ema: str
    """The model that is averaged."""
    into: str | None = None
    """The model that holds the average (default: a hidden one with the op's name)."""
    decay: DecayField | None = None
    """The share of the old average that is kept: a number, a schedule, or a formula by its `kind`."""
    start: StartField | None = None
    """When it begins, counted from 1; `{at: 3 epochs, before: copy}` makes it a copy of its source before that."""
    half_life: UpdatesField | None = None
    """After how long half of the old average is gone: updates of the source, or time in any other unit."""
    tau: ScheduledShare | None = None
    """The share of the new weights that is taken: 1 - decay."""
    schedule_free: Literal[True] | None = None
    """The average is the one that a schedule-free optimizer of the source keeps, in place of a decay."""
    interval_correction: Literal["compound", "none"] | None = None
    """Whether `every: k` keeps the product of the decays of the writes passed over (default: compound for half_life and
    the kind power, none for the others)."""
    buffers: BufferPolicy | None = None
    """What happens to buffers such as BatchNorm's statistics."""
    init: Literal["initial", "first_update", "zeros"] | None = None
    """How the average begins: as the target's initial weights, as a copy when it is first due, or at zero, which is
    taken out wherever it is read (default: initial, or first_update where it has a `start`)."""
    use: Deferred[UseSpec] = UseSpec.model_construct()
    """Where the average stands in for the model: `{eval: swap}` evaluates it in the model's place."""
    float_buffers: BufferPolicy | None = None
    """What happens to floating-point buffers, where others are said apart."""
    int_buffers: Literal["copy", "ignore"] | None = None
    """What happens to the other buffers, next to `float_buffers`; an average of them means nothing (default: copy)."""
    match: Pattern | None = None
    """Only parameters in whose names this regular expression is found are averaged; the rest is copied."""
    exclude: Pattern | None = None
    """Parameters in whose names this regular expression is found are copied, not averaged."""
    dtype: Literal["float32", "bfloat16", "float16"] | None = None
    """The type whose numbers the average has: it is rounded to them after each time (default: that of the step)."""
    rounding: Literal["nearest", "stochastic"] | None = None
    """How it is rounded to `dtype`: to the nearest number, or up or down at random, right in the mean."""

    @field_validator("ema", mode="before")
    @classmethod
    def _refuse_soup(cls, value: object) -> object:
        if isinstance(value, list):
            message = "an ema averages one model over time, found several"
            help = (
                "several averages are an ema for each model; "
                "the mean of `a` and `b` is `{copy: a, into: soup}`, and after it `{ema: b, into: soup, decay: 0.5}`; "
                "a third one has decay 2/3; all must be written in the same steps"
            )
            raise problem("GS053", message, help=help)
        return value

    @field_validator("every", mode="before")
    @classmethod
    def _read_every(cls, value: object) -> object:
        """Read an interval: a number of writes, an update, or a duration, which the pace turns into writes."""
        is_timed = isinstance(value, Duration) or (isinstance(value, str) and not value.replace(".", "").isidentifier())
        return parse_duration(value) if is_timed else OpBase._read_every(value)

    @field_validator("start", "until", mode="before")
    @classmethod
    def _read_moment(cls, value: object, info: ValidationInfo) -> object:
        """Read when it begins or ends; a mapping also says what it is before."""
        if not (isinstance(value, dict) and info.field_name == "start"):
            return OpBase._read_moment(cast("object", value), info)
        given = StartSpec.model_validate(value)
        at = OpBase._read_moment(given.at, info)
        assert isinstance(at, Duration)
        return Start(count=at.count, unit=at.unit, before=given.before)

    @model_validator(mode="after")
    def _check_rate(self) -> EmaOp:
        rates = {"decay": self.decay, "half_life": self.half_life, "tau": self.tau}
        given = [name for name, value in rates.items() if value is not None]
        if self.schedule_free is not None:
            written = {name: getattr(self, name) for name in UNDECIDED}
            others = (*given, *(name for name, value in written.items() if value is not None))
            if others or self.use.write_back is not None:
                other = (*others, "use.write_back")[0]
                help = f"remove it, or `{other}`: the optimizer decides how much counts"
                raise below(
                    ("schedule_free",), problem("GS053", f"`schedule_free` and `{other}` exclude each other", help=help)
                )
            return self
        if len(given) != 1:
            found = " and ".join(f"`{name}`" for name in given) or "none of them"
            help = "`decay: 0.999`, `half_life: 500 updates` or `tau: 0.005`"
            raise problem("GS053", f"an ema has exactly one of {', '.join(rates)}; found {found}", help=help, at="key")
        if self.interval_correction == "compound" and isinstance(self.decay or self.tau, ScheduleSpec):
            # The power would be another at every firing.
            message = "`interval_correction: compound` goes with a decay of every write, found a schedule"
            help = "let the schedule give the decay of each firing, and leave `interval_correction` out"
            raise below(("interval_correction",), problem("GS053", message, help=help))
        if self.init == "zeros" and isinstance(self.decay or self.tau, ScheduleSpec):
            # What is left of the zeros is the product of all decays: of a schedule it is no function of a count.
            message = "`init: zeros` goes with a number or a formula for the decay, found a schedule"
            help = "write a decay by `kind`, or `init: first_update`, which has no zeros to take out"
            raise below(("init",), problem("GS053", message, help=help))
        if self.int_buffers is not None and self.float_buffers is None:
            help = "write `float_buffers` too, or `buffers` for all of them"
            raise below(("int_buffers",), problem("GS053", "`int_buffers` goes with `float_buffers`", help=help))
        if self.buffers is not None and self.float_buffers is not None:
            help = "keep `buffers`, or write `float_buffers` and `int_buffers`"
            raise below(
                ("float_buffers",), problem("GS053", "an ema has `buffers` or `float_buffers`, found both", help=help)
            )
        if self.use.recompute_buffers is not None and self.into is not None:
            message = (
                "`recompute_buffers` changes the average before an evaluation, and `into` is a model for others too"
            )
            help = f"remove `into: {self.into}`: the average is a hidden model with the op's name then"
            raise below(("use", "recompute_buffers"), problem("GS053", message, help=help))
        back = self.use.write_back
        if back is not None and not (isinstance(self.every or 1, int) and back.every % self.wait == 0):
            message = f"the model would take an average that was not taken: `write_back` is every {back.every} writes"
            help = "write a multiple of the average's own `every`, which is a number then"
            raise below(("use", "write_back", "every"), problem("GS053", message, help=help))
        if self.rounding is not None and self.dtype is None:
            message = "`rounding` says how the average comes to be of a `dtype`, and there is none"
            raise below(("rounding",), problem("GS053", message, help="write `dtype: bfloat16`, or remove it"))
        if (
            isinstance(self.decay, ScheduleSpec)
            and self.decay.to is None
            and FIELDS[self.decay.schedule].get("to") == 0
        ):
            help = "write the decay that it ends with, as `to: 1.0`: at 0, its default, the average is a copy"
            raise below(
                ("decay",), problem("GS053", f"a {self.decay.schedule} schedule of a decay needs `to`", help=help)
            )
        return self

    @property
    def kind(self) -> Literal["ema"]:
        """Return the key of this kind."""
        return "ema"

    @property
    def formula(self) -> DecaySpec | None:
        """Return the formula of the decay, where what is kept depends on how often the source was written."""
        return self.decay if isinstance(self.decay, DecaySpec) and self.decay.kind not in PLAIN else None

    @property
    def halving(self) -> Duration | None:
        """Return after how long half of the old average is gone, where that is how the decay is given."""
        return self.half_life or (self.decay.half_life if isinstance(self.decay, DecaySpec) else None)

    @property
    def correction(self) -> Literal["compound", "none"]:
        """Return the interval correction with its default resolved."""
        is_timed = self.halving is not None or (self.formula is not None and self.formula.kind == "power")
        return self.interval_correction or ("compound" if is_timed else "none")

    @property
    def beginning(self) -> Literal["initial", "first_update", "zeros"]:
        """Return how the average starts, with the default resolved: one that starts late is a copy at its start."""
        return self.init or ("initial" if self.start is None else "first_update")

    @property
    def is_counted(self) -> bool:
        """Return whether what is kept depends on how often it took place before."""
        compounds = self.correction == "compound" and self.every not in (None, 1)
        is_uneven = self.start is not None and (compounds or self.copies_before)  # the first time is another
        return self.formula is not None or self.beginning != "initial" or is_uneven

    @property
    def wait(self) -> int:
        """Return after how many writes of the source it is due; 1 where its interval is no number."""
        return self.every if isinstance(self.every, int) else 1

    @property
    def buffer_policy(self) -> BufferPolicy | None:
        """Return what happens to floating-point buffers, where the op says so itself."""
        default: BufferPolicy | None = None if self.use.recompute_buffers is None else "copy"
        return self.buffers or self.float_buffers or default

    @property
    def copies_before(self) -> bool:
        """Return whether it is a copy of its source before its start."""
        return isinstance(self.start, Start) and self.start.before == "copy"

    @property
    def opens(self) -> Duration | None:
        """Return when it may fire for the first time; None: from the first step on."""
        return None if self.copies_before else self.start

    def target(self, name: str) -> str:
        """Return the model that the op of this name writes."""
        return name if self.into is None else self.into

    def defines(self, name: str) -> tuple[str, ...]:
        """Return nothing: an average is a model, not a value."""
        return ()

    def operands(self) -> Iterator[Reference]:
        """Yield the two models."""
        yield Reference(path=("ema",), name=self.ema, role="source")
        if self.into is not None:
            yield Reference(path=("into",), name=self.into, role="model")
