"""``transform``: change gradients before they are used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from graphspec.declare.fields import Names
from graphspec.declare.functions import FunctionName
from graphspec.declare.ops.base import OpBase, Reference
from graphspec.declare.schedules import ScheduledArgs


class TransformOp(OpBase):
    """Map one gradient set, or several over the same models, to one."""

    transform: FunctionName
    """The function: a name of the library, `pkg.mod:fn`, or one path per backend."""
    inputs: Names
    """The gradient sets it is given."""
    args: ScheduledArgs = {}
    """Constants it takes by keyword, such as `norm`."""

    @property
    def kind(self) -> Literal["transform"]:
        """Return the key of this kind."""
        return "transform"

    def operands(self) -> Iterator[Reference]:
        """Yield the gradient sets."""
        for index, name in enumerate(self.inputs):
            yield Reference(path=("inputs", index), name=name, role="gradients")
