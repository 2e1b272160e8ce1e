"""Checks of what gradients that are not finite stop: E-SKIP-SCOPE."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.diagnose import span_of
from compiler.ir import StepGraph
from compiler.passes.commits import find_gradients, find_groups, takes_part
from graphspec.diagnostics import Diagnostic
from graphspec.graph import GraphSpec


def check_skip_scope(spec: GraphSpec, graph: StepGraph) -> Iterator[Diagnostic]:
    """Yield E-SKIP-SCOPE where all updates are to be one group, and one happens before another's gradient."""
    asking = next((node.op for node in graph.nodes.values() if node.overflow == "all"), "")
    for group in find_groups(graph) if asking else ():
        updates = [node.id for node in group if takes_part(node)]
        for node in group:
            gradients = find_gradients(graph, node)
            early = (first for each in gradients for first in graph.causality.past(each, updates))
            for first in dict.fromkeys(graph.nodes[each].op for each in early):
                yield Diagnostic(
                    code="E-SKIP-SCOPE",
                    message=f"'{asking}' says `on_overflow: all`, but '{first}' happens before the gradient of "
                    f"'{node.op}', and could not be undone",
                    span=span_of(spec, asking, "on_overflow"),
                    label="one update cannot wait for the other's gradient",
                    help="write `on_overflow: group`: what happens before the same updates is skipped together",
                )
