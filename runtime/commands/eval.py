"""``stepgraph eval``: the figures of a run's checkpoint on a data set."""

from __future__ import annotations

import json
import math
from enum import StrEnum
from typing import Annotated, TypeAlias

import typer

from runtime.commands.options import Allow, CheckpointOption, Device, RunFolder, Xla
from runtime.terminal import say

Data: TypeAlias = Annotated[
    str | None,
    typer.Option("--data", metavar="ROLE|FILE", help="A set of the spec's `data`, or a file in place of one."),
]


class Format(StrEnum):
    """The forms in which figures are printed."""

    text = "text"
    json = "json"


FormatOption: TypeAlias = Annotated[Format, typer.Option("--format", help="How the figures are printed.")]


def evaluate(
    run: RunFolder,
    data: Data = None,
    checkpoint: CheckpointOption = "best",
    device: Device = "auto",
    xla: Xla = False,
    allow: Allow = None,
    format: FormatOption = Format.text,
) -> None:
    """Evaluate a run: one pass over a data set with the weights of its best checkpoint, or of another."""
    from runtime.runs.judging import Question, judge

    given = tuple(allow or ())
    question = Question(folder=run, data=data, choice=checkpoint, device=device, allow=given, jit_compile=xla)
    answer = judge(question)
    if format is Format.json:
        figures = {name: value if math.isfinite(value) else None for name, value in answer.figures.items()}
        say(json.dumps({"checkpoint": str(answer.path), "data": answer.data, "figures": figures}))
        return
    say(f"{answer.path} on {answer.data}")
    width = max(map(len, answer.figures), default=0)
    for name, value in answer.figures.items():
        say(f"  {name:{width}}  {value:.10g}")
