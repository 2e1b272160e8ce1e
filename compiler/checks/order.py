"""Check of the order of writers: E-UNORDERED-WRITES."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.cells import is_optimizer, is_state
from compiler.diagnose import span_of
from compiler.ir import StepGraph
from compiler.passes.versions import find_unordered
from graphspec.diagnostics import Diagnostic
from graphspec.graph import GraphSpec
from graphspec.ops import UpdateOp


def find_unordered_problems(spec: GraphSpec, graph: StepGraph) -> Iterator[Diagnostic]:
    """Yield E-UNORDERED-WRITES once for every pair of updates, averages, copies or assignments."""
    pairs: dict[tuple[str, str], str] = {}
    for cell, first, second in find_unordered(graph):
        if not is_optimizer(cell) and _is_told_here(spec, first, second):
            pairs.setdefault((first, second), cell)
    for (first, second), cell in pairs.items():
        place = graph.nodes[first].place
        yield Diagnostic(
            code="E-UNORDERED-WRITES",
            message=f"'{first}' and '{second}' both write {cell} in one step, and nothing says which comes first",
            span=span_of(spec, second),
            label=f"'{first}' writes it too" + (f" ({place})" if place else ""),
            help=_help(cell, first, second),
        )


def _help(cell: str, first: str, second: str) -> str:
    """Return the remedy, which depends on what is written."""
    order = f"write `after: {first}` on '{second}'"
    return order if is_state(cell) else f"add the losses and update once, or {order}"


def _is_told_here(spec: GraphSpec, first: str, second: str) -> bool:
    """Return whether two writers are rivals in order only: an average into what an update steps is E-EMA-TARGET."""
    return isinstance(spec.ops[first], UpdateOp) == isinstance(spec.ops[second], UpdateOp)
