"""Checks of what gradients reach: E-NO-GRADIENT, W-TARGET."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping

from compiler.batch.losses import find_terms
from compiler.ir.cell import find_parameter_cells
from compiler.ir.diagnose import span_of
from compiler.ir.digraph import number
from compiler.ir.instructions import Evaluate, Gradient, Instruction
from compiler.ir.mode_graph import ModeGraph
from compiler.ir.step_graph import StepGraph
from compiler.ir.value import Derivative, Ref
from compiler.types.calls import ADDITIVE, SCALING
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import UpdateOp
from graphspec.diagnostics import Diagnostic

REGRESSIONS = frozenset({"mse", "l1", "huber"})
"""Losses whose second operand is a target."""


def check_loss_terms(graph: ModeGraph) -> Iterator[Diagnostic]:
    """Yield E-NO-GRADIENT for an additive term of a loss that reaches no target of any gradient of that loss."""
    paths = graph.paths
    users: dict[str, list[tuple[Instruction, Derivative]]] = {}
    for node, derivative in graph.gradients():
        users.setdefault(derivative.loss, []).append((node, derivative))
    for loss, gradients in users.items():
        reached, targets = set[str](), set[str]()
        for node, derivative in gradients:
            reached |= paths[node.id].nodes
            targets.update(derivative.models, derivative.values)
        if not reached or any(isinstance(node, Gradient) and node.grad_outputs for node, _ in gradients):
            continue  # the targets are checked instead; what has `grad_outputs` is no sum of terms
        terms = [term for term in find_summands(graph, loss, targets) if graph.producers.get(term) not in reached]
        if not terms:
            continue
        *others, last = (f"'{target}'" for target in sorted(targets))
        either = f"{', '.join(others)} or {last}" if others else last
        op, written = gradients[0][0].op, _written(graph, loss)
        for term in terms:
            part = _written(graph, term)
            what = f"'{written}'" if part == written else f"the term '{part}' of '{written}'"
            yield Diagnostic(
                code="E-NO-GRADIENT",
                message=f"{what} does not depend on {either}, so no gradient of it reaches them",
                span=span_of(graph.spec, op, "loss"),
                label=f"used by '{op}'",
                help="check the inputs of the loss, and every `stop` on the path from the model to it",
            )


def check_targets(graph: ModeGraph) -> Iterator[Diagnostic]:
    """Yield E-NO-GRADIENT for a target that a gradient's loss does not depend on, unless `unconnected` allows it."""
    paths = graph.paths
    # The gradients of terms that count differently are checked together: the gradient of the loss is their sum.
    groups: dict[tuple[str, ...], list[tuple[Instruction, Derivative]]] = {}
    for node, derivative in graph.gradients():
        is_share = isinstance(node, Gradient) and bool(node.term)
        key = (node.op, *derivative.models) if is_share else (node.id,)
        groups.setdefault(key, []).append((node, derivative))
    for group in groups.values():
        node, derivative = group[0]
        if _may_miss(node):
            continue
        together = [paths[each.id] for each, _ in group]
        cells = {read.cell for path in together for name in path.nodes for read in graph.nodes[name].reads}
        values = {value for path in together for value, _ in path.uses}
        for model in derivative.models:
            if not cells.intersection(graph.models[model].cells):
                yield _unreached(graph, node, derivative, f"model '{model}'")
        for value in derivative.values:
            if value not in values:
                yield _unreached(graph, node, derivative, f"value '{value}'")


def check_left_targets(spec: GraphSpec, graph: StepGraph) -> Iterator[Diagnostic]:
    """Yield E-NO-GRADIENT for a target that only terms reach that are absent in a step that updates it."""
    for name, path in graph.paths.items():
        node = graph.nodes[name]
        if node.derivative is None or _may_miss(node):
            continue
        terms = find_terms(spec, node.derivative.loss)
        if not any(term in spec.ops and term not in graph.nodes for term in terms):
            continue  # all ops of its terms fire
        cells = {read.cell for each in path.nodes for read in graph.nodes[each].reads}
        for model in node.derivative.models:
            if cells.isdisjoint(find_parameter_cells(spec)[model]):
                yield Diagnostic(
                    code="E-NO-GRADIENT",
                    message=f"'{node.op}' has no gradient for model '{model}' in the steps in which a lazy term is "
                    "absent",
                    span=span_of(spec, node.op, "update"),
                    label="only that term depends on the model",
                    help=f"write `missing: skip` or `missing: zero`, or update '{model}' by a separate op with the "
                    "term's clock",
                )


def _may_miss(node: Instruction) -> bool:
    """Return whether a gradient says what to do with parameters that it does not reach."""
    return isinstance(node, Gradient) and node.unconnected != "error"


def _unreached(graph: ModeGraph, node: Instruction, derivative: Derivative, target: str) -> Diagnostic:
    """Return the diagnostic of a target that no term reaches."""
    field = "update" if isinstance(graph.spec.ops[node.op], UpdateOp) else "wrt"
    loss = _written(graph, derivative.loss)
    return Diagnostic(
        code="E-NO-GRADIENT",
        message=f"'{node.op}' takes the gradient of '{loss}' for {target}, but '{loss}' does not depend on it",
        span=span_of(graph.spec, node.op, field),
        label=f"'{loss}' does not reach it",
        help=f"use a loss that is computed from {target}, or look for a `stop` on the path from it to '{loss}'",
    )


def _written(graph: ModeGraph, value: str) -> str:
    """Return the name of a value in the spec: of what lowering makes of a loss, such as its sum, the loss."""
    producer = graph.producers.get(value)
    op = "" if producer is None else graph.nodes[producer].op
    return value if producer is None or value in graph.spec.ops[op].defines(op) else op


def find_summands(graph: ModeGraph, loss: str, targets: Collection[str]) -> tuple[str, ...]:
    """Return the terms that a loss sums; `add`, `sub`, and constant factors keep terms separate.

    A term that is a target itself is left out: the loss depends on it regardless of how it is computed.
    """
    terms: dict[str, None] = {}
    pending, seen = deque([loss]), {*targets}
    while pending:
        value = pending.popleft()
        if value in seen:
            continue
        seen.add(value)
        producer = graph.producers.get(value)
        node = None if producer is None else graph.nodes[producer]
        parts: list[str] = []
        if isinstance(node, Evaluate) and node.function.builtin and node.family == "call":
            values = [each.operand.name for each in node.arguments if isinstance(each.operand, Ref)]
            name = node.function.name
            parts = values if name in ADDITIVE or (name in SCALING and len(values) == 1) else []
        pending.extend(parts)
        if not parts:
            terms[value] = None
    return tuple(terms)


def check_bootstrap(graph: ModeGraph) -> Iterator[Diagnostic]:
    """Yield W-TARGET where a model is called twice in one regression loss, once for the target, without `stop`."""
    place = number(graph.causality.pasts)
    for node, derivative in graph.gradients():
        inside = [graph.nodes[name] for name in sorted(graph.paths[node.id].nodes & graph.nodes.keys())]
        losses = [each for each in inside if isinstance(each, Evaluate) and each.function.name in REGRESSIONS]
        bits, repeated = _find_repeated(inside if losses else (), frozenset(derivative.models))
        made = _find_called(graph, sorted(inside if repeated else (), key=lambda each: place[each.id]), bits)
        for loss in losses if made else ():
            operands = (each.operand for each in loss.arguments)
            makers = (graph.producers.get(each.name, "") if isinstance(each, Ref) else "" for each in operands)
            first, second, *_ = [*(made.get(maker, 0) for maker in makers), 0]
            twice = (model for model, calls in repeated.items() if first & calls and second & calls & ~first)
            for model in sorted(twice)[:1]:
                yield Diagnostic(
                    code="W-TARGET",
                    severity="warning",
                    message=f"'{loss.id}' compares '{model}' with a target that '{model}' computes too, and both get "
                    "gradients",
                    span=span_of(graph.spec, loss.op, "inputs"),
                    label="the second input is a target",
                    help="write `stop: true` on the forward of the target if it is a constant for this gradient",
                )


def _find_repeated(nodes: Iterable[Instruction], models: frozenset[str]) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Return the forwards of some models, each as one bit, and by model that has several the bits of all."""
    bits: dict[str, int] = {}
    of_model: dict[str, int] = {}
    for node in nodes:
        if node.called is not None and node.called in models:
            bits[node.id] = 1 << len(bits)
            of_model[node.called] = of_model.get(node.called, 0) | bits[node.id]
    return bits, {model: calls for model, calls in of_model.items() if calls.bit_count() > 1}


def _find_called(graph: ModeGraph, path: Iterable[Instruction], bits: Mapping[str, int]) -> Mapping[str, int]:
    """Return the forwards that each node of a path is computed from, itself among them; each forward is one bit."""
    made: dict[str, int] = {}
    for node in path:
        makers = (graph.producers.get(use.value, "") for use in node.uses if use.differentiable)
        made[node.id] = bits.get(node.id, 0)
        for maker in makers:
            made[node.id] |= made.get(maker, 0)
    return made
