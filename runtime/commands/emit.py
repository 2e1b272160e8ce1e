"""``stepgraph emit``: the step as Python that needs the framework alone."""

from __future__ import annotations

from runtime.commands.options import Backend, BackendOption, Order, OrderOption, Output, Overrides, SpecPath
from runtime.commands.planning import make_plan
from runtime.commands.results import deliver


def emit(
    spec: SpecPath,
    overrides: Overrides = None,
    backend: BackendOption = Backend.torch,
    order: OrderOption = Order.fewest,
    output: Output = None,
) -> None:
    """Write the step as a Python file that needs the framework alone."""
    from runtime import api

    deliver(api.emit(make_plan(spec, overrides, backend, order, pending=False)), output)
