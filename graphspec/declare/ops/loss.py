"""``loss``: measure how wrong values are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import model_validator

from graphspec.declare.base import below, problem
from graphspec.declare.functions import FunctionName, read_options
from graphspec.declare.inputs import Inputs
from graphspec.declare.ops.base import OpBase, Reference
from graphspec.declare.schedules import ScheduledArgs, ScheduledNumber


class LossOp(OpBase):
    """Evaluate a loss of values: one of the library, or a user's."""

    loss: FunctionName
    """The loss: a name of the library, `pkg.mod:fn`, or one path per backend."""
    inputs: Inputs = Inputs.model_construct()
    """What it is given, predictions before targets; a number is a tensor filled with it."""
    args: ScheduledArgs = {}
    """Constants it takes by keyword, such as `axis`."""
    expr: str | None = None
    """The value of the expression of which it is a part; documents cannot say so."""
    reduction: Literal["mean", "sum", "none"] | None = None
    """How the elements are combined (default: the loss's own, a mean over elements for most)."""
    weight: ScheduledNumber | None = None
    """A factor."""
    lazy: Literal["scale", "none"] | None = None
    """Whether a loss that runs at every n-th step counts n times there (`scale`, the default), so that it weighs as
    much as in every step, or once (`none`)."""

    @model_validator(mode="before")
    @classmethod
    def _read_options(cls, value: object) -> object:
        """Read the options of a loss of the library under the names that PyTorch gives them, too."""
        return read_options(value, "loss")

    @model_validator(mode="after")
    def _check_every(self) -> LossOp:
        if isinstance(self.every, str) and self.lazy != "none":
            help = "write the number of steps, as in `every: 16`, or `lazy: none` for a loss that is not scaled up"
            message = "a loss with a clock counts as often as it was left out, so it needs a number of steps"
            raise below(("every",), problem("GS057", message, help=help))
        return self

    @property
    def times(self) -> int:
        """Return how often the loss counts in the steps in which it runs."""
        return self.every if isinstance(self.every, int) and self.lazy != "none" else 1

    @property
    def is_lazy(self) -> bool:
        """Return whether the loss is absent from some steps, so that sums do without it there."""
        return self.every not in (None, 1) or self.start is not None or self.until is not None

    @property
    def kind(self) -> Literal["loss"]:
        """Return the key of this kind."""
        return "loss"

    def operands(self) -> Iterator[Reference]:
        """Yield the inputs."""
        for key, name in self.inputs.references():
            yield Reference(path=("inputs", key), name=name, role="value")
