"""Run settings: how long `stepgraph run` trains, when it evaluates and stops, and what it writes."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Strict, model_validator

from graphspec.declare.base import Declaration, Deferred, below, problem
from graphspec.declare.durations import Duration, DurationField
from graphspec.declare.fields import Count, NumberFromZero, listed

LogName: TypeAlias = Literal["jsonl", "csv", "tensorboard"]
Goal: TypeAlias = Literal["min", "max"]
EvalMode: TypeAlias = Literal["eval", "test", "infer"]

LogNames = Annotated[
    tuple[LogName, ...], Strict(False), BeforeValidator(listed, json_schema_input_type=LogName | list[LogName])
]


def _bare_duration(value: object) -> object:
    """Read `500 steps` as `{every: 500 steps}`."""
    return {"every": value} if isinstance(value, str | int) and not isinstance(value, bool) else value


class ImagesSpec(Declaration):
    """Write a value as a grid of images."""

    value: str
    """The value that holds the images, [batch, channels, height, width]."""
    every: DurationField | None = None
    """How often (default: at the end only)."""
    data: str | None = None
    """The set in `data` whose first batch it is computed from (default: the first batch of the run)."""


class EvalSpec(Declaration):
    """Evaluate on a data set while training: a whole pass, in a mode that does not train."""

    every: DurationField = Duration(count=1.0, unit="epochs")
    """How often."""
    data: str | None = None
    """The name of the set in `data` (default: `test`, or `eval` where there is no `test`)."""
    mode: EvalMode = "eval"
    """The mode of the step it runs in."""
    dataset: str | None = None
    """The data set that its batches are of, where ops name some: so those that are for it alone run too."""


class BestSpec(Declaration):
    """Keep the checkpoint with the best value of a figure."""

    metric: str
    """An output of the evaluation, or of training where the run has no `eval`."""
    mode: Goal | None = None
    """Whether lower or higher is better (default: lower for a loss, higher for an accuracy; others need it)."""


class StopSpec(Declaration):
    """Stop early, when a figure has not become better for a while."""

    metric: str
    """An output of the evaluation, or of training where the run has no `eval`."""
    mode: Goal | None = None
    """Whether lower or higher is better (default: lower for a loss, higher for an accuracy; others need it)."""
    patience: Count
    """After how many evaluations without a better value it stops; logged steps where the run has no `eval`."""
    min_delta: NumberFromZero = 0.0
    """By how much more than this a value must be better to count as better."""


class CheckpointSpec(Declaration):
    """Save the state of the run while it trains: `500 steps`, or `{every: 500 steps, keep: 3}`."""

    every: DurationField
    """How often; the end is always saved."""
    keep: Count = 3
    """How many of the newest are kept, in addition to the best one."""


class RunSpec(Declaration):
    """How long to train, when to evaluate and stop, and what to write."""

    steps: Count | None = None
    """How many steps are run."""
    epochs: Count | None = None
    """How many passes over the training data are run, in place of `steps`."""
    log_every: Count = 50
    """Every how many steps the outputs are logged."""
    log: LogNames = ("jsonl", "csv")
    """The kinds of log files."""
    eval: Annotated[
        Deferred[EvalSpec] | None,
        BeforeValidator(_bare_duration, json_schema_input_type=Deferred[EvalSpec] | DurationField),
    ] = None
    """When the step is evaluated, and on what data."""
    best: Deferred[BestSpec] | None = None
    """The figure whose best checkpoint is kept."""
    stop: Deferred[StopSpec] | None = None
    """When training stops before its end."""
    checkpoint: Annotated[
        Deferred[CheckpointSpec] | None,
        BeforeValidator(_bare_duration, json_schema_input_type=Deferred[CheckpointSpec] | DurationField),
    ] = None
    """How often the state of the run is saved (default: at its end only)."""
    images: Deferred[ImagesSpec] | None = None
    """A value that is written as images."""
    check_data: bool = False
    """Whether every batch is checked for non-finite values and labels out of range."""

    @model_validator(mode="after")
    def _check_length(self) -> RunSpec:
        if self.steps is not None and self.epochs is not None:
            message = "a run has `steps` or `epochs`, found both"
            raise below(("epochs",), problem("GS053", message, help="keep the one that is meant", at="key"))
        return self
