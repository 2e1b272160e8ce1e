"""``stepgraph doctor``: what is installed, what works, and where a spec would run."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from runtime.commands.options import Allow, Backend, BackendOption, Order, Output
from runtime.commands.planning import make_plan
from runtime.commands.results import deliver
from runtime.terminal import complain


class Format(StrEnum):
    """The forms a report can be printed in."""

    text = "text"
    json = "json"


MaybeSpec: TypeAlias = Annotated[Path | None, typer.Argument(metavar="SPEC", help="A graph spec to build here.")]
FormatOption: TypeAlias = Annotated[Format, typer.Option("--format", help="The form of the report.")]


def doctor(
    spec: MaybeSpec = None,
    backend: BackendOption = Backend.torch,
    allow: Allow = None,
    form: FormatOption = Format.text,
    output: Output = None,
) -> None:
    """Tell what is installed and works here, and whether a spec can be built."""
    from runtime.diagnosis import examine
    from runtime.diagnosis.report import tell_examination

    if spec is not None:
        make_plan(spec, (), backend, Order.fewest)  # what is wrong with the spec itself is told as always
    found = examine(spec, backend.value, allow or ())
    deliver(json.dumps(found.to_plain(), indent=2) if form is Format.json else tell_examination(found, spec), output)
    if found.trial is not None and found.trial.problems:
        complain(found.trial.problems)
    if not found.is_sound:
        raise typer.Exit(1)
