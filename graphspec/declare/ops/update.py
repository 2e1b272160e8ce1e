"""``update``: one optimizer step on one or several models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, cast

from pydantic import Field, Strict, model_validator

from graphspec.declare.base import Declaration, Deferred, Reader, below, problem
from graphspec.declare.fields import Names
from graphspec.declare.ops.base import ModeName, OpBase, Reference
from graphspec.declare.optimizers import OptimizerSpec
from graphspec.declare.parameters import Constraints
from graphspec.declare.schedules import OwnFromZero, OwnPositive, ScheduleSpec
from graphspec.words import describe

Steps = Annotated[int, Strict(), Field(ge=1)]


class AccumulateSpec(Declaration):
    """A window: `accumulate: 4`, or what else there is to say of it."""

    steps: Steps
    """How many steps' gradients become one update."""
    reduce: Literal["mean", "sum", "steps"] = "mean"
    """`mean`: every sample of the window counts alike; `sum`: gradients are added up; `steps`: steps count alike."""
    on_epoch_end: Literal["carry", "flush", "drop"] = "carry"
    """What becomes of a window that an epoch leaves open.

    `carry`: it continues into the next; `flush`: the last step of the epoch applies it; `drop`: it is discarded.
    """
    on_nonfinite: Literal["drop", "window"] = "drop"
    """What a gradient that is not finite costs, under a loss scale or with `on_overflow`: its step, or the window."""


def _read_window(value: object) -> AccumulateSpec:
    """Read a window: `4` is `{steps: 4}`; refuse what is neither a number of steps nor a mapping."""
    if isinstance(value, int) and not isinstance(value, bool):
        return AccumulateSpec.model_validate({"steps": value})
    if isinstance(value, str | float | bool):
        message = f"expected a whole number from 1 up, or a mapping, as `accumulate`, found {describe(value)}"
        raise problem("GS041", message, help="write `accumulate: 4`, or `accumulate: {steps: 4, reduce: mean}`")
    return AccumulateSpec.model_validate(value)


AccumulateField = Annotated[AccumulateSpec, Reader(_read_window, Steps | AccumulateSpec)]


class ClipSpec(Declaration):
    """Clip gradients before the optimizer sees them: `{norm: 1.0}`, `{value: 0.5}` or `{agc: 0.01}`."""

    norm: OwnPositive | None = None
    """The longest the gradients may be: those of all models of the update together, or each by itself."""
    value: OwnPositive | None = None
    """The largest absolute value of an element."""
    agc: OwnPositive | None = None
    """The longest the gradient of a unit may be, as a multiple of the unit's weights: adaptive gradient clipping."""
    eps: OwnFromZero | None = None
    """With `norm`: added to the norm before dividing by it (0; `torch.nn.utils.clip_grad_norm_` has 1e-6).
    With `agc`: the least that the norm of a unit's weights counts (0.001)."""
    per: Literal["global", "parameter"] = "global"
    """Over what a norm is taken: all gradients of the update, or those of one parameter, as Keras' `clipnorm` does."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_numbers(cls, value: object) -> object:
        if isinstance(value, int | float) and not isinstance(value, bool):
            help = f"write `clip: {{norm: {value}}}`, `clip: {{value: {value}}}` or `clip: {{agc: {value}}}`"
            raise problem("GS041", f"expected a mapping as `clip`, found {describe(value)}", help=help)
        return value

    @model_validator(mode="after")
    def _check_limit(self) -> ClipSpec:
        limits = {"norm": self.norm, "value": self.value, "agc": self.agc}
        written = [name for name, limit in limits.items() if limit is not None]
        if len(written) != 1:
            found = " and ".join(f"`{name}`" for name in written) or "none of them"
            message = f"clip has one of `norm`, `value` and `agc`, found {found}"
            raise problem("GS053", message, help="write `clip: {norm: 1.0}`", at="key")
        if self.per == "parameter" and self.norm is None:
            message = f"`per: parameter` goes with `norm`, found `{written[0]}`"
            raise problem("GS053", message, help="remove `per`: there is no norm of all gradients here", at="key")
        if self.eps and self.value is not None:
            raise problem("GS053", "`eps` goes with `norm` and `agc`, found `value`", help="remove `eps`", at="key")
        return self

    @property
    def kind(self) -> Literal["norm", "value", "agc"]:
        """Return by what is clipped."""
        return "norm" if self.norm is not None else "value" if self.value is not None else "agc"

    @property
    def limit(self) -> float | ScheduleSpec:
        """Return the value of the kind."""
        return next(each for each in (self.norm, self.value, self.agc) if each is not None)

    @property
    def epsilon(self) -> float | ScheduleSpec:
        """Return `eps`, or its default."""
        return self.eps if self.eps is not None else 0.001 if self.kind == "agc" else 0.0


class UpdateOp(OpBase):
    """Step models: from a loss, or from gradients that other ops computed."""

    default_modes: ClassVar[tuple[ModeName, ...]] = ("train",)

    update: Names
    """The models that are stepped."""
    loss: str | None = None
    """The value whose gradient is applied."""
    gradients: Names | None = None
    """Gradient sets that together cover the models, in place of a loss."""
    optimizer: Deferred[OptimizerSpec] | None = None
    """One optimizer for all models of this update, in place of their own."""
    clip: Deferred[ClipSpec] | None = None
    """How gradients are clipped, over all models of the update together."""
    defer: Literal["auto", "end", "never"] = "auto"
    """When the weights are written: as early as correct, at the end, or immediately (an error where that is wrong)."""
    missing: Literal["error", "skip", "zero"] = "error"
    """What to do with a parameter that has no gradient: refuse, leave it unchanged, or step it with a zero gradient."""
    accumulate: AccumulateField | None = None
    """How many steps' gradients become one update: a number, or `{steps, reduce}`."""
    constraint: Constraints | None = None
    """What all parameters of this update are projected onto, in place of the constraints of its models."""
    on_overflow: Literal["group", "all", "own", "apply", "error"] | None = None
    """What a gradient that is not finite stops: its group (the default under a loss scale), all updates of the step,
    this update alone, nothing, or the run."""
    shared: Literal["sum"] | None = None
    """`sum`: what other updates step as well this one steps for all, on the sum of the gradients."""
    reduce: Literal["mean", "sum"] | None = None
    """How the gradients that this update takes combine over processes, in place of `reduce` of `parallel`."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_sparse(cls, value: object) -> object:
        if isinstance(value, dict) and "sparse" in value:
            help = "write `optimizer: {name: adam, sparse: lazy}`, and `sparse: true` in the embedding"
            message = "`sparse` says how an optimizer steps, and is written there"
            raise below(("sparse",), problem("GS056", message, help=help, at="key"))
        return cast("object", value)

    @model_validator(mode="after")
    def _check_source(self) -> UpdateOp:
        if (self.loss is None) == (self.gradients is None):
            found = "neither" if self.loss is None else "both"
            help = "`loss: my_loss`, or `gradients: my_gradients` from a `gradient` or `transform` op"
            raise problem("GS053", f"an update has a `loss` or `gradients`, found {found}", help=help, at="key")
        if self.clip is None or self.is_single:
            return self
        for name, number in ((self.clip.kind, self.clip.limit), ("eps", self.clip.eps)):
            if isinstance(number, ScheduleSpec) and number.clock == "updates":
                message = "this update has several optimizers, and `clock: updates` counts those of one"
                raise below(("clip", name), problem("GS053", message, help="write `clock: steps`"))
        return self

    @property
    def is_single(self) -> bool:
        """Return whether one optimizer makes the whole update."""
        return self.optimizer is not None or len(self.update) == 1

    @property
    def window(self) -> int:
        """Return how many steps' gradients become one update."""
        return 1 if self.accumulate is None else self.accumulate.steps

    @property
    def at_epoch_end(self) -> Literal["carry", "flush", "drop"]:
        """Return what becomes of a window that an epoch leaves open."""
        return "carry" if self.accumulate is None or self.window == 1 else self.accumulate.on_epoch_end

    @property
    def kind(self) -> Literal["update"]:
        """Return the key of this kind."""
        return "update"

    def defines(self, name: str) -> tuple[str, ...]:
        """Return nothing: an update writes models and has no value."""
        return ()

    def operands(self) -> Iterator[Reference]:
        """Yield the models, and the loss or the gradient sets."""
        for index, name in enumerate(self.update):
            yield Reference(path=("update", index), name=name, role="model")
        if self.loss is not None:
            yield Reference(path=("loss",), name=self.loss, role="loss")
        for index, name in enumerate(self.gradients or ()):
            yield Reference(path=("gradients", index), name=name, role="gradients")
