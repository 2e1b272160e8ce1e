"""``call``: evaluate a pure function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import model_validator

from graphspec.declare.fields import Names
from graphspec.declare.functions import FunctionName, read_options
from graphspec.declare.inputs import Inputs
from graphspec.declare.ops.base import OpBase, Reference
from graphspec.declare.schedules import ScheduledArgs


class CallOp(OpBase):
    """Evaluate a pure function of values: one of the library, or a user's."""

    call: FunctionName
    """The function: a name of the library, `pkg.mod:fn`, or one path per backend."""
    inputs: Inputs = Inputs.model_construct()
    """What it is called with: one reference, a list, or a mapping from argument names."""
    outputs: Names | None = None
    """Names of its results, where it has several; these are the values then."""
    args: ScheduledArgs = {}
    """Constants it takes by keyword, such as `axis`."""
    expr: str | None = None
    """The value of the expression of which it is a part; documents cannot say so."""

    @model_validator(mode="before")
    @classmethod
    def _read_options(cls, value: object) -> object:
        """Read the options of a function of the library under the names that PyTorch gives them, too."""
        return read_options(value, "call")

    @property
    def kind(self) -> Literal["call"]:
        """Return the key of this kind."""
        return "call"

    def defines(self, name: str) -> tuple[str, ...]:
        """Return the outputs, or the op's own name where none are written."""
        return self.outputs or (name,)

    def operands(self) -> Iterator[Reference]:
        """Yield the inputs."""
        for key, name in self.inputs.references():
            yield Reference(path=("inputs", key), name=name, role="value")
