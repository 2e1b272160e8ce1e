"""``loss``: measure how wrong values are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator

from graphspec.declaration import NotBuilt, not_built
from graphspec.fields import Args, Number
from graphspec.functions import FunctionName
from graphspec.inputs import Inputs
from graphspec.ops.base import Every, OpBase, Reference


def _refuse_every(value: object) -> object:
    raise not_built("`every` on a loss (a lazy term)", help="write `every` on the update that uses it")


class LossOp(OpBase):
    """Evaluate a loss of values: one of the library, or a user's."""

    loss: FunctionName
    """The loss: a name of the library, `pkg.mod:fn`, or one path per backend."""
    inputs: Inputs = Inputs()
    """What it is given, predictions before targets; numbers stand for tensors filled with them."""
    args: Args = {}
    """Constants it takes by keyword, such as `axis`."""
    reduction: Literal["mean", "sum", "none"] | None = None
    """How the elements are combined (default: the loss's own, a mean over elements for most)."""
    weight: Number | None = None
    """A constant factor."""
    lazy: NotBuilt = None
    every: Annotated[Every | None, BeforeValidator(_refuse_every)] = None

    @property
    def kind(self) -> Literal["loss"]:
        """Return the key of this kind."""
        return "loss"

    def operands(self) -> Iterator[Reference]:
        """Yield the inputs."""
        for key, name in self.inputs.references():
            yield Reference(path=("inputs", key), name=name, role="value")
