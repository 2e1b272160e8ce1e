"""``metric``: a figure to watch, running over the batches since its reset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import PlainSerializer, WithJsonSchema

from graphspec.declare.base import Reader, problem
from graphspec.declare.durations import PATTERN, Duration, parse_duration
from graphspec.declare.fields import Args
from graphspec.declare.functions import FunctionName
from graphspec.declare.inputs import Inputs
from graphspec.declare.ops.base import OpBase, Reference
from graphspec.words import did_you_mean

Moment: TypeAlias = Literal["epoch", "never", "step"]
WORDS: tuple[Moment, ...] = get_args(Moment)
HELP = "write `epoch`, `never`, `step` or a duration such as `100 steps` or `2 epochs`"


def _read_reset(value: object) -> Moment | Duration:
    for word in WORDS:
        if value == word:
            return word
    if isinstance(value, str) and value.isidentifier():
        raise problem("GS050", f"a metric is not reset at {value!r}", label=did_you_mean(value, WORDS), help=HELP)
    return parse_duration(value)


_JSON = {
    "anyOf": [
        {"enum": [*WORDS]},
        {"type": "integer", "minimum": 1},
        {"type": "string", "pattern": PATTERN},
        {"type": "string", "pattern": r"\$\{"},
    ]
}
Reset = Annotated[Moment | Duration, Reader(_read_reset), PlainSerializer(str), WithJsonSchema(_JSON)]


class MetricOp(OpBase):
    """Evaluate a metric of values: one of the library, or a user's."""

    metric: FunctionName
    """The metric: a name of the library, `pkg.mod:path` of a function or class of your own, or one path per backend."""
    inputs: Inputs = Inputs.model_construct()
    """What it is given, predictions before targets."""
    args: Args = {}
    """Constants that a function takes by keyword with every batch, and a class when it is made."""
    reset: Reset = "epoch"
    """When its running value resets: with each `epoch` or `step`, `never`, or after `100 steps` or `2 epochs`."""

    @property
    def kind(self) -> Literal["metric"]:
        """Return the key of this kind."""
        return "metric"

    def operands(self) -> Iterator[Reference]:
        """Yield the inputs."""
        for key, name in self.inputs.references():
            yield Reference(path=("inputs", key), name=name, role="value")
