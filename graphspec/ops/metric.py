"""``metric``: a figure to watch, running over the batches since its reset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from graphspec.declaration import not_built, problem
from graphspec.durations import Duration, parse_duration
from graphspec.fields import Args
from graphspec.functions import FunctionName
from graphspec.inputs import Inputs
from graphspec.ops.base import OpBase, Reference
from graphspec.suggestions import closest

Moment: TypeAlias = Literal["epoch", "never", "step"]
WORDS: tuple[Moment, ...] = get_args(Moment)
HELP = "write `epoch`, `never`, `step` or a number of steps such as `100 steps`"


def _read(value: object) -> Moment | Duration:
    """Read when a metric starts anew."""
    for word in WORDS:
        if value == word:
            return word
    if isinstance(value, str) and value.isidentifier():
        near = closest(value, WORDS)
        label = f"did you mean '{near[0]}'?" if near else ""
        raise problem("GS050", f"a metric is not reset at {value!r}", label=label, help=HELP)
    duration = parse_duration(value)
    if duration.unit != "steps":
        raise not_built(f"a reset counted in {duration.unit}", help=HELP, at="value")
    return duration


def _spell(reset: Moment | Duration) -> str:
    return reset if isinstance(reset, str) else str(reset)


_STEPS = r"^\s*[0-9]+\s*(steps?|ba)?\s*$"
_JSON = {
    "anyOf": [
        {"enum": [*WORDS]},
        {"type": "integer", "minimum": 1},
        {"type": "string", "pattern": _STEPS},
        {"type": "string", "pattern": r"\$\{"},
    ]
}
Reset = Annotated[Moment | Duration, PlainValidator(_read), PlainSerializer(_spell), WithJsonSchema(_JSON)]


class MetricOp(OpBase):
    """Evaluate a metric of values: one of the library, or a user's."""

    metric: FunctionName
    """The metric: a name of the library, `pkg.mod:path` of a function or class of your own, or one path per backend."""
    inputs: Inputs = Inputs()
    """What it is given, predictions before targets."""
    args: Args = {}
    """Constants that a function takes by keyword with every batch, and a class when it is made."""
    reset: Reset = "epoch"
    """When its running value starts anew: with each `epoch` or `step`, `never`, or after so many steps."""

    @property
    def kind(self) -> Literal["metric"]:
        """Return the key of this kind."""
        return "metric"

    @property
    def window(self) -> Moment | int:
        """Return `reset` with a duration as its steps."""
        return self.reset if isinstance(self.reset, str) else int(self.reset.count)

    def operands(self) -> Iterator[Reference]:
        """Yield the inputs."""
        for key, name in self.inputs.references():
            yield Reference(path=("inputs", key), name=name, role="value")
