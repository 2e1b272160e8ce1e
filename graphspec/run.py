"""Run settings: how long `stepgraph run` trains and what it writes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Strict

from graphspec.declaration import Declaration, NotBuilt, not_built
from graphspec.durations import DurationField
from graphspec.fields import Count, listed


class ImagesSpec(Declaration):
    """Write a value as a grid of images."""

    value: str
    """The value that holds the images, [batch, channels, height, width]."""
    every: DurationField | None = None
    """How often (default: at the end only)."""


def _only_files(value: object) -> object:
    if value == "tensorboard":
        raise not_built("`tensorboard` among the logs", help="use jsonl or csv")
    return value


LogName = Annotated[Literal["jsonl", "csv"], BeforeValidator(_only_files)]
LogNames = Annotated[
    tuple[LogName, ...],
    Strict(False),
    BeforeValidator(listed, json_schema_input_type=Literal["jsonl", "csv"] | list[Literal["jsonl", "csv"]]),
]


class RunSpec(Declaration):
    """How long to train and what to write."""

    steps: Count | None = None
    """How many steps are run."""
    log_every: Count = 50
    """Every how many steps the outputs are logged."""
    log: LogNames = ("jsonl", "csv")
    """The kinds of log files."""
    images: ImagesSpec | None = None
    """A value that is written as images."""
    epochs: NotBuilt = None
    eval: NotBuilt = None
    best: NotBuilt = None
    stop: NotBuilt = None
    checkpoint: NotBuilt = None
    check_data: NotBuilt = None
