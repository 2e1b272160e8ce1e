"""``stepgraph explain``: why one op stands where it stands."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from runtime.commands.options import Backend, BackendOption, Order, OrderOption, Output, Overrides, SpecPath
from runtime.commands.planning import make_plan
from runtime.commands.results import deliver
from runtime.problems import problem

OpName: TypeAlias = Annotated[str, typer.Argument(metavar="OP", help="The name of an op of the spec.")]


def explain(
    spec: SpecPath,
    op: OpName,
    overrides: Overrides = None,
    backend: BackendOption = Backend.torch,
    order: OrderOption = Order.fewest,
    output: Output = None,
) -> None:
    """Tell why an op stands where it stands in the step."""
    made = make_plan(spec, overrides, backend, order)
    try:
        text = made.explain(op)
    except KeyError as error:
        raise problem("GS232", str(error.args[0])) from error
    deliver(text, output)
