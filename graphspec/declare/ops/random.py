"""``random``: draw a random tensor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from pydantic import model_validator

from graphspec.declare.base import problem
from graphspec.declare.fields import Shape
from graphspec.declare.ops.base import OpBase, Reference
from graphspec.declare.schedules import ScheduledArgs

Distribution: TypeAlias = Literal["normal", "uniform", "bernoulli", "permutation", "randint"]


_FORMS = "write `shape: [batch, 32]`, or `like: x` for the sizes of another value"


class RandomOp(OpBase):
    """Draw random numbers, keyed by seed, mode, step and the op's name."""

    random: Distribution
    """What is drawn."""
    shape: Shape | None = None
    """The sizes of the result; `batch` is that of the step's inputs."""
    like: str | None = None
    """A value whose sizes the result has."""
    args: ScheduledArgs = {}
    """Parameters of the distribution, such as `std`."""

    @model_validator(mode="after")
    def _check_sizes(self) -> RandomOp:
        if (self.shape is None) == (self.like is None):
            found = "neither" if self.shape is None else "both"
            raise problem("GS053", f"a random op has a `shape` or a `like`, found {found}", help=_FORMS, at="key")
        return self

    @property
    def kind(self) -> Literal["random"]:
        """Return the key of this kind."""
        return "random"

    def operands(self) -> Iterator[Reference]:
        """Yield the value it is like."""
        if self.like is not None:
            yield Reference(path=("like",), name=self.like, role="value")
