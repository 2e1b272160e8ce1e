"""``stepgraph diff``: what changes from one spec to another, in what is declared and in what happens."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from graphspec.diagnostics import SpecError
from runtime.commands.options import Backend, BackendOption, Order, OrderOption, Output
from runtime.commands.results import deliver
from runtime.terminal import complain, show_error

if TYPE_CHECKING:
    from compiler import Plan
    from compiler.ir.value import Json, Object
    from graphspec.graph import GraphSpec

NOTHING_DECLARED = "declared: nothing is different"


class Format(StrEnum):
    """The forms a difference can be printed in."""

    text = "text"
    json = "json"


OldSpec: TypeAlias = Annotated[Path, typer.Argument(metavar="SPEC_A", help="A graph spec: what was.")]
NewSpec: TypeAlias = Annotated[Path, typer.Argument(metavar="SPEC_B", help="A graph spec: what is.")]
FormatOption: TypeAlias = Annotated[Format, typer.Option("--format", help="The form of the difference.")]
NewOverrides: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "-s", "--set", metavar="KEY=VALUE", help="Override a value of SPEC_B: -s vars.lr=1e-3. May be repeated."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Side:
    """One of the two specs, with its plan where it has one."""

    path: Path
    spec: GraphSpec
    plan: Plan | None


def diff(
    old: OldSpec,
    new: NewSpec,
    overrides: NewOverrides = None,
    backend: BackendOption = Backend.torch,
    order: OrderOption = Order.fewest,
    form: FormatOption = Format.text,
    output: Output = None,
) -> None:
    """Show what changes from one spec to another: declarations, schedule, versions and reasons."""
    from compiler.plan.diff import compare_plans, export_difference, tell_difference

    opened = [_open(old, (), backend, order), _open(new, overrides or (), backend, order)]
    sides = [side for side in opened if side is not None]
    if len(sides) < 2:
        raise typer.Exit(1)
    before, after = sides
    if before.plan is None or after.plan is None:
        deliver(_tell(sides, "", backend, order), output)
        complain("the schedules are not compared: a spec that does not compile has none")
        raise typer.Exit(1)
    difference = compare_plans(before.plan, after.plan)
    if form is Format.text:
        deliver(_tell(sides, tell_difference(difference), backend, order), output)
    else:
        deliver(_export(sides, export_difference(difference), backend, order), output)


def _open(path: Path, overrides: Sequence[str], backend: Backend, order: Order) -> _Side | None:
    """Return a spec and its plan after printing what is wrong with it; None where it cannot be read."""
    from compiler import compile_step
    from graphspec.load import load
    from runtime.pacing import find_pace

    try:
        spec = load(path, overrides)
    except SpecError as error:
        show_error(error)
        return None
    try:
        plan = compile_step(spec, backend=backend.value, order=order.value, pace=find_pace(spec, path), pending=True)
    except SpecError as error:
        show_error(error)
        return _Side(path=path, spec=spec, plan=None)
    return _Side(path=path, spec=spec, plan=plan)


def _tell(sides: Sequence[_Side], schedule: str, backend: Backend, order: Order) -> str:
    """Return the difference as text: where it is between, what is declared otherwise, what that means."""
    from runtime.runs.changes import compare_specs

    old, new = sides
    changes = compare_specs(old.spec, new.spec)
    title = f"{old.path} -> {new.path}  ({backend.value}, order {order.value})"
    declared = ["declared", *(f"  {change}" for change in changes)] if changes else [NOTHING_DECLARED]
    return "\n".join((title, "", *declared, "", schedule)).rstrip("\n")


def _export(sides: Sequence[_Side], schedule: Object, backend: Backend, order: Order) -> str:
    from runtime.runs.changes import compare_specs

    old, new = sides
    head: Object = {"diff": 1, "from": str(old.path), "to": str(new.path)}
    declared: list[Json] = [
        {"path": each.path, "before": each.before, "after": each.after} for each in compare_specs(old.spec, new.spec)
    ]
    whole: Object = {**head, "backend": backend.value, "order": order.value, "declared": declared, **schedule}
    return json.dumps(whole, indent=2, ensure_ascii=False)
