"""Checks of forwards that run again when a gradient is taken: E-ADAPT, GS133."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from compiler.facts.models import find_root
from compiler.ir.cell import find_tied
from compiler.ir.diagnose import span_of
from compiler.ir.hazard_table import HazardTable
from compiler.ir.instructions import Forward, Instruction
from compiler.ir.mode_graph import ModeGraph
from compiler.ir.step_graph import StepGraph
from compiler.passes.flags import is_recomputed
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import ForwardOp
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


def check_recomputed(spec: GraphSpec, graph: StepGraph, table: HazardTable) -> Iterator[Diagnostic]:
    """Yield GS133 for a gradient that recomputes one model, or two that may share a module, in training and evaluation.

    A class may always do something else in evaluation; of two that are tied, only those with buffers or draws are held
    to share what does.
    """
    shadows = spec.shadows()
    for gradient, path in graph.paths.items() if table.holds_modes else ():
        again = [node for node in map(graph.nodes.__getitem__, path.nodes) if is_recomputed(node)]
        forwards = [node for node in again if isinstance(node, Forward)]
        forwards.sort(key=lambda node: graph.listing[node.id])
        found: dict[tuple[str, ...], tuple[str, str]] = {}  # ops in training and in evaluation, once for their models
        for one, other in product(forwards, repeat=2):
            models = tuple(dict.fromkeys((one.model, other.model)))
            if not one.train or other.train:
                continue
            followed = one.model
            while followed in shadows:
                followed = shadows[followed].ema
            is_alone = len(models) == 1 and spec.models[find_root(spec, followed)].class_ is not None
            shares = len(models) == 1 or other.model in find_tied(spec, one.model)
            if is_alone or (shares and (_is_modal(one) or _is_modal(other))):
                found[models] = one.op, other.op
        for models, (training, evaluating) in found.items():
            which = f"'{models[0]}'" if len(models) == 1 else f"a module that '{models[0]}' and '{models[1]}' share"
            op = spec.ops[evaluating]
            no_checkpoint = "remove `checkpoint` from one, " if isinstance(op, ForwardOp) and op.checkpoint else ""
            instead = f"`like: {models[0]}`" if len(models) == 1 else "without ties"
            yield Diagnostic(
                code="GS133",
                message=f"the gradient of '{graph.nodes[gradient].op}' recomputes '{training}' as in training and "
                f"'{evaluating}' as in evaluation, and {which} can be in one mode only",
                span=span_of(spec, evaluating),
                label=f"recomputed together with '{training}'",
                help=f"write the same `train` on both, `stop: true` on one, {no_checkpoint}"
                f"or give '{evaluating}' a separate model that is {instead}",
            )


def _is_modal(node: Instruction) -> bool:
    """Return whether the model of a call has what training and evaluation usually differ in: buffers or draws."""
    return (isinstance(node, Forward) and node.draws) or any(read.cell.kind == "buffers" for read in node.reads)
