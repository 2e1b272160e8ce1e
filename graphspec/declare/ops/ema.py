"""``ema``: a running average of a model's weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal, cast

from pydantic import field_validator, model_validator

from graphspec.declare.base import Declaration, NotBuilt, below, not_built, problem
from graphspec.declare.durations import UpdatesField
from graphspec.declare.fields import is_schedule
from graphspec.declare.models import BufferPolicy
from graphspec.declare.ops.base import ModeName, OpBase, Reference
from graphspec.declare.schedules import FIELDS, ScheduledShare, ScheduleSpec


class UseSpec(Declaration):
    """Where the average stands in for the model."""

    eval: Literal["swap", "separate"] = "separate"
    """In modes other than train: the model's forwards run with the average once there is one (swap), or do not."""
    write_back: NotBuilt = None


class EmaOp(OpBase):
    """Average a model's weights into another model, or into a hidden one named after the op."""

    default_modes: ClassVar[tuple[ModeName, ...]] = ("train",)

    ema: str
    """The model that is averaged."""
    into: str | None = None
    """The model that holds the average (default: a hidden one with the op's name)."""
    decay: ScheduledShare | None = None
    """The share of the old average that is kept."""
    half_life: UpdatesField | None = None
    """After how long half of the old average is gone: updates of the source, or time in any other unit."""
    tau: ScheduledShare | None = None
    """The share of the new weights that is taken: 1 - decay."""
    schedule_free: Literal[True] | None = None
    """The average is the one that a schedule-free optimizer of the source keeps, in place of a decay."""
    interval_correction: Literal["compound", "none"] | None = None
    """Whether `every: k` raises the decay to the power k (default: compound for half_life, none for decay and tau)."""
    buffers: BufferPolicy | None = None
    """What happens to buffers such as BatchNorm's statistics."""
    init: Literal["initial"] = "initial"
    """How the average starts: as the target's initial weights."""
    use: UseSpec = UseSpec()
    """Where the average stands in for the model: `{eval: swap}` evaluates it in the model's place."""
    dtype: NotBuilt = None
    rounding: NotBuilt = None
    match: NotBuilt = None
    exclude: NotBuilt = None
    float_buffers: NotBuilt = None
    int_buffers: NotBuilt = None

    @field_validator("decay", mode="before")
    @classmethod
    def _refuse_kind(cls, value: object) -> object:
        if isinstance(value, dict) and not is_schedule(cast("object", value)):
            help = "write a number, a schedule, or `half_life: 500 updates`"
            raise not_built("a decay by `kind`", help=help)
        return cast("object", value)

    @field_validator("init", mode="before")
    @classmethod
    def _refuse_beginning(cls, value: object) -> object:
        if value in ("first_update", "zeros"):
            raise not_built(f"`init: {value}`", help="the average starts as the target's initial weights")
        return value

    @model_validator(mode="after")
    def _check_rate(self) -> EmaOp:
        rates = {"decay": self.decay, "half_life": self.half_life, "tau": self.tau}
        given = [name for name, value in rates.items() if value is not None]
        if self.schedule_free is not None:
            if given or self.interval_correction is not None:
                other = (*given, "interval_correction")[0]
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
            message = "`interval_correction: compound` goes with a decay that does not change, found a schedule"
            help = "let the schedule give the decay of each firing, and leave `interval_correction` out"
            raise below(("interval_correction",), problem("GS053", message, help=help))
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
    def correction(self) -> Literal["compound", "none"]:
        """Return the interval correction with its default resolved."""
        return self.interval_correction or ("none" if self.half_life is None else "compound")

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
