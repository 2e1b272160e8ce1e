"""``gradient``: gradients as values."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Literal

from graphspec.declare.fields import Names
from graphspec.declare.ops.base import OpBase, Reference


class GradientOp(OpBase):
    """Differentiate a loss with respect to models or values.

    The models of `wrt` give one gradient set over all of them, the values one gradient each; the set comes first
    among the `outputs`, then the gradients of the values in the order of `wrt`.
    """

    gradient: str
    """The value that is differentiated."""
    wrt: Names
    """Models, derived ones among them, and values it is differentiated with respect to."""
    grad_outputs: Names | None = None
    """A value the derivative is multiplied with, where the differentiated one is not a scalar."""
    unconnected: Literal["error", "skip", "zero"] = "error"
    """What to do with a parameter that the loss does not reach."""
    stop: bool = False
    """Whether the gradients are constants for every other gradient."""
    outputs: Names | None = None
    """Names of the gradients, where there are several; these are the values then."""

    @property
    def kind(self) -> Literal["gradient"]:
        """Return the key of this kind."""
        return "gradient"

    def defines(self, name: str) -> tuple[str, ...]:
        """Return the outputs, or the op's own name where none are written."""
        return self.outputs or (name,)

    def split(self, models: Container[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the targets that are models, and those that are values, each in order."""
        found = tuple(name for name in self.wrt if name in models)
        return found, tuple(name for name in self.wrt if name not in models)

    def operands(self) -> Iterator[Reference]:
        """Yield the loss, the targets and the cotangents."""
        yield Reference(path=("gradient",), name=self.gradient, role="loss")
        for index, name in enumerate(self.wrt):
            yield Reference(path=("wrt", index), name=name, role="target")
        for index, name in enumerate(self.grad_outputs or ()):
            yield Reference(path=("grad_outputs", index), name=name, role="value")
