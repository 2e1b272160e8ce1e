"""Checks of what gradients that are not finite stop: E-SKIP-SCOPE, and windows that cannot be judged yet."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.chains import is_update
from compiler.checks.context import Scene
from compiler.diagnose import span_of
from compiler.instructions import Gather
from compiler.ir import StepGraph
from compiler.passes.commits import find_gradients, find_groups
from graphspec.diagnostics import Diagnostic
from graphspec.graph import GraphSpec


def check_skip_scope(spec: GraphSpec, graph: StepGraph) -> Iterator[Diagnostic]:
    """Yield E-SKIP-SCOPE where all updates are to be one group, and one happens before another's gradient."""
    asking = next((node.op for node in graph.nodes.values() if node.overflow == "all"), "")
    for group in find_groups(graph) if asking else ():
        updates = [node.id for node in group if is_update(node)]
        for node in group:
            gradients = find_gradients(graph, node)
            early = (first for each in gradients for first in graph.causality.past(each, updates))
            for first in dict.fromkeys(early):
                yield Diagnostic(
                    code="E-SKIP-SCOPE",
                    message=f"'{asking}' says `on_overflow: all`, but '{first}' happens before the gradient of "
                    f"'{node.op}', and could not be undone",
                    span=span_of(spec, asking, "on_overflow"),
                    label="one update cannot wait for the other's gradient",
                    help="write `on_overflow: group`: what happens before the same updates is skipped together",
                )


def check_open_windows(scene: Scene) -> Iterator[Diagnostic]:
    """Yield GS045 where gradients that may be absent go into a window under verdicts.

    Whether a parameter has a gradient in the steps that count is then known on the device alone.
    """
    for node in scene.nodes.values():
        gather = node.instruction
        if isinstance(gather, Gather) and gather.gaps and gather.guard != "none":
            yield Diagnostic(
                code="GS045",
                message=f"'{node.op}' accumulates gradients that may be absent, and skips those that are not finite: "
                "both together are part of the language but not built yet",
                span=span_of(scene.spec, node.op, "accumulate"),
                help="write `missing: zero` (or `unconnected: zero` on the gradient), or `on_overflow: apply`",
            )
