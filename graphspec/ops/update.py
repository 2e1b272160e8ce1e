"""``update``: one optimizer step on one or several models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, model_validator

from graphspec.declaration import Declaration, NotBuilt, not_built, problem
from graphspec.fields import Names, NumberFromZero, PositiveNumber
from graphspec.ops.base import ModeName, OpBase, Reference
from graphspec.optimizers import OptimizerSpec
from graphspec.words import describe


def _only_global(value: object) -> object:
    if value == "parameter":
        raise not_built("`per: parameter`", help="leave `per` out: the norm is then that of all gradients together")
    return value


def _only_error(value: object) -> object:
    if value in ("skip", "zero"):
        raise not_built(f"`missing: {value}`", help="write a `gradient` op with `unconnected:` and use its set")
    return value


class ClipSpec(Declaration):
    """Clip gradients before the optimizer sees them: `{norm: 1.0}` or `{value: 0.5}`."""

    norm: PositiveNumber | None = None
    """The longest the gradients of all models of the update may be together."""
    value: PositiveNumber | None = None
    """The largest absolute value of an element."""
    eps: NumberFromZero = 0.0
    """Added to the norm before dividing by it; `torch.nn.utils.clip_grad_norm_` has 1e-6."""
    per: Annotated[Literal["global"], BeforeValidator(_only_global)] = "global"
    """Over what the norm is taken."""
    agc: NotBuilt = None

    @model_validator(mode="before")
    @classmethod
    def _refuse_numbers(cls, value: object) -> object:
        if isinstance(value, int | float) and not isinstance(value, bool):
            help = f"write `clip: {{norm: {value}}}` or `clip: {{value: {value}}}`"
            raise problem("GS041", f"expected a mapping as `clip`, found {describe(value)}", help=help)
        return value

    @model_validator(mode="after")
    def _check(self) -> ClipSpec:
        if (self.norm is None) == (self.value is None):
            found = "neither" if self.norm is None else "both"
            raise problem(
                "GS053", f"clip has a `norm` or a `value`, found {found}", help="write `clip: {norm: 1.0}`", at="key"
            )
        return self


class UpdateOp(OpBase):
    """Step models: from a loss, or from gradients that other ops computed."""

    default_modes: ClassVar[tuple[ModeName, ...]] = ("train",)

    update: Names
    """The models that are stepped."""
    loss: str | None = None
    """The value whose gradient is applied."""
    gradients: Names | None = None
    """Gradient sets that together cover the models, in place of a loss."""
    optimizer: OptimizerSpec | None = None
    """One optimizer for all models of this update, in place of their own."""
    clip: ClipSpec | None = None
    """How gradients are clipped, over all models of the update together."""
    defer: Literal["auto", "end", "never"] = "auto"
    """When the weights are written: as early as is right, at the end, or at once (an error where that is wrong)."""
    missing: Annotated[Literal["error"], BeforeValidator(_only_error)] = "error"
    """What to do with a parameter that the loss does not reach."""
    accumulate: NotBuilt = None
    constraint: NotBuilt = None
    on_overflow: NotBuilt = None
    shared: NotBuilt = None
    reduce: NotBuilt = None
    sparse: NotBuilt = None

    @model_validator(mode="after")
    def _check(self) -> UpdateOp:
        if (self.loss is None) == (self.gradients is None):
            found = "neither" if self.loss is None else "both"
            help = "`loss: my_loss`, or `gradients: my_gradients` from a `gradient` or `transform` op"
            raise problem("GS053", f"an update has a `loss` or `gradients`, found {found}", help=help, at="key")
        return self

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
