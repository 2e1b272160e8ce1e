"""Check of forwards that are recomputed when a gradient is taken: GS133."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.ir.cell import is_buffers
from compiler.ir.diagnose import span_of
from compiler.ir.hazard_table import HazardTable
from compiler.ir.instructions import Forward
from compiler.ir.step_graph import Node, StepGraph
from compiler.passes.flags import is_recomputed
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import ForwardOp
from graphspec.diagnostics import Diagnostic


def check_recomputed(spec: GraphSpec, graph: StepGraph, table: HazardTable) -> Iterator[Diagnostic]:
    """Yield GS133 for a gradient that recomputes one model both as in training and as in evaluation.

    Of models without buffers and draws nothing is known that would differ between the two.
    """
    for gradient, path in graph.paths.items() if table.holds_modes else ():
        recomputed = [node for name, node in graph.nodes.items() if name in path.nodes and is_recomputed(node)]
        calls = [(node, node.instruction) for node in recomputed]
        modes = {(call.model, call.train): node.op for node, call in calls if isinstance(call, Forward)}
        modal = [call.model for node, call in calls if isinstance(call, Forward) and _is_modal(node)]
        for model in dict.fromkeys(modal):
            if (model, True) in modes and (model, False) in modes:
                training, evaluating = modes[model, True], modes[model, False]
                yield Diagnostic(
                    code="GS133",
                    message=f"the gradient of '{graph.nodes[gradient].op}' recomputes '{training}' as in training and "
                    f"'{evaluating}' as in evaluation, and '{model}' can be in one mode only",
                    span=span_of(spec, evaluating),
                    label=f"recomputed together with '{training}'",
                    help=f"write the same `train` on both, `stop: true` on one, {_or_no_checkpoint(spec, evaluating)}"
                    f"or give '{evaluating}' a model of its own that is `like: {model}`",
                )


def _or_no_checkpoint(spec: GraphSpec, name: str) -> str:
    """Return the remedy of a call that is recomputed because its op says so."""
    op = spec.ops[name]
    return "take `checkpoint` off one, " if isinstance(op, ForwardOp) and op.checkpoint else ""


def _is_modal(node: Node) -> bool:
    """Return whether the model of a call may do something else in training than in evaluation."""
    draws = isinstance(node.instruction, Forward) and node.instruction.draws
    return draws or any(is_buffers(read.cell) for read in node.reads)
