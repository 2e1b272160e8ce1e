"""``stepgraph check``: find every problem of specs without running anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from graphspec.diagnostics import SpecError
from runtime.commands.options import Backend, BackendOption, Order, OrderOption, Overrides
from runtime.terminal import counted, say, show, show_error

if TYPE_CHECKING:
    from graphspec.graph import GraphSpec

Specs: TypeAlias = Annotated[list[Path], typer.Argument(metavar="SPEC", help="Graph specs: YAML or JSON files.")]


def check(
    specs: Specs,
    overrides: Overrides = None,
    backend: BackendOption = Backend.torch,
    order: OrderOption = Order.fewest,
) -> None:
    """Find every problem of one or more specs; runs nothing and imports nothing that they name."""
    sound = [_check_one(path, overrides or (), backend, order) for path in specs]
    if not all(sound):
        raise typer.Exit(1)


def _check_one(path: Path, overrides: Sequence[str], backend: Backend, order: Order) -> bool:
    """Print what is wrong with one spec; return whether it can be run."""
    from compiler import compile_step
    from graphspec.load import load
    from runtime.pacing import find_pace

    try:
        spec = load(path, overrides)
        plan = compile_step(spec, backend=backend.value, order=order.value, pace=find_pace(spec, path), pending=True)
    except SpecError as error:
        show_error(error)
        return False
    show((*plan.warnings, *plan.pending), spec.texts())
    notes = f", {counted(len(plan.pending), 'note')}" if plan.pending else ""
    say(f"{path}: ok, {counted(len(plan.warnings), 'warning')}{notes} ({_describe(spec)})")
    return True


def _describe(spec: GraphSpec) -> str:
    updates = sum(op.kind == "update" for op in spec.ops.values())
    return f"{counted(len(spec.models), 'model')}, {counted(len(spec.ops), 'op')}, {counted(updates, 'update')}"
