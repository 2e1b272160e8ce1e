"""Check of derived models: E-ADAPT."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.ir.diagnose import span_of
from compiler.ir.instructions import Forward
from compiler.ir.mode_graph import ModeGraph
from graphspec.diagnostics import Diagnostic


def check_derived_calls(graph: ModeGraph) -> Iterator[Diagnostic]:
    """Yield E-ADAPT for a call of a derived model parts of which run again when a gradient is taken.

    They would run with the parameters of the model: the weights in their place are there in the first call alone.
    """
    for node in graph.nodes.values():
        if isinstance(node, Forward) and node.weights is not None and graph.models[node.model].recomputes:
            yield Diagnostic(
                code="E-ADAPT",
                message=f"'{node.op}' calls '{node.weights.name}', which is derived from '{node.model}', a model that "
                "recomputes parts of its calls",
                span=span_of(graph.spec, node.op, "forward"),
                label="gradients would run them again with the parameters of the model",
                help=f"leave activation checkpoints out of the class of '{node.model}'",
            )
