"""``stepgraph render``: a spec with every default and every interpolation written out."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from runtime.commands.options import Output, Overrides, SpecPath
from runtime.commands.results import deliver
from runtime.problems import problem

if TYPE_CHECKING:
    from graphspec.graph import GraphSpec


class Format(StrEnum):
    """The forms a spec can be written in."""

    yaml = "yaml"
    json = "json"


FormatOption: TypeAlias = Annotated[Format, typer.Option("--format", help="The form of the document.")]


def render(
    spec: SpecPath, overrides: Overrides = None, form: FormatOption = Format.yaml, output: Output = None
) -> None:
    """Print a spec with its overrides, every default and every interpolation written out."""
    from graphspec.load import load
    from graphspec.rendering import render as write

    loaded = load(spec, overrides or ())
    deliver(write(loaded) if form is Format.yaml else _to_json(loaded), output)


def _to_json(spec: GraphSpec) -> str:
    from graphspec.rendering import to_plain

    try:
        return json.dumps(to_plain(spec), indent=2, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        message = "JSON has no number that is infinite or not a number, and the spec has one"
        raise problem("GS238", message, help="leave `--format json` out: YAML has them") from error
