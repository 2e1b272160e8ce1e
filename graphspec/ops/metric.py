"""``metric``: a figure to watch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from graphspec.declaration import NotBuilt
from graphspec.functions import FunctionName
from graphspec.inputs import Inputs
from graphspec.ops.base import OpBase, Reference


class MetricOp(OpBase):
    """Evaluate a metric of values: one of the library, or a user's."""

    metric: FunctionName
    """The metric: a name of the library, `pkg.mod:fn`, or one path per backend."""
    inputs: Inputs = Inputs()
    """What it is given, predictions before targets."""
    reset: NotBuilt = None

    @property
    def kind(self) -> Literal["metric"]:
        """Return the key of this kind."""
        return "metric"

    def operands(self) -> Iterator[Reference]:
        """Yield the inputs."""
        for key, name in self.inputs.references():
            yield Reference(path=("inputs", key), name=name, role="value")
