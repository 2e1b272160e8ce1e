"""``stepgraph plan``: what happens in a step, in what order, and why."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from runtime.commands.options import (
    Backend,
    BackendOption,
    Mode,
    Order,
    OrderOption,
    Output,
    Overrides,
    SpecPath,
)
from runtime.commands.planning import make_plan
from runtime.commands.results import deliver
from runtime.problems import problem

if TYPE_CHECKING:
    from compiler import Plan


class Format(StrEnum):
    """The forms a plan can be printed in."""

    text = "text"
    json = "json"
    mermaid = "mermaid"
    dot = "dot"
    svg = "svg"
    html = "html"


ModeOption: TypeAlias = Annotated[Mode, typer.Option("--mode", help="The mode whose plan is shown.")]
FormatOption: TypeAlias = Annotated[Format, typer.Option("--format", help="The form; svg and html are not built yet.")]


def plan(
    spec: SpecPath,
    overrides: Overrides = None,
    backend: BackendOption = Backend.torch,
    order: OrderOption = Order.fewest,
    mode: ModeOption = Mode.train,
    form: FormatOption = Format.text,
    output: Output = None,
) -> None:
    """Show what happens in a step, in what order, and why."""
    made = make_plan(spec, overrides, backend, order)
    modes = [program.mode for program in made.program.modes]
    if mode.value not in modes:
        message = f"the step has no mode {mode.value!r}: nothing that it returns is computed there"
        raise problem("GS233", message, help=f"its modes are: {', '.join(modes)}")
    deliver(_print(made, mode, form), output)


def _spell_controls(text: str) -> str:
    """Return JSON with characters that a terminal would act on as escapes; line breaks are those of the layout."""
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each).strip('"') for each in text)


def _print(made: Plan, mode: Mode, form: Format) -> str:
    match form:
        case Format.text:
            return made.text(mode.value)
        case Format.json:
            return _spell_controls(json.dumps(made.to_json(mode.value), indent=2, ensure_ascii=False))
        case Format.mermaid:
            return made.mermaid(mode.value)
        case Format.dot:
            return made.dot(mode.value)
        case Format.svg | Format.html:
            message = f"`--format {form.value}` is part of the design but not built yet"
            raise problem(
                "GS235", message, help="use `--format dot` and a viewer of Graphviz files, or `--format mermaid`"
            )
