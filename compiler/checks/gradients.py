"""Checks of what gradients reach: E-NO-GRADIENT, W-TARGET."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from compiler.batch.losses import ADDITIVE, SCALING
from compiler.batch.losses import find_terms as find_terms_of
from compiler.ir.cell import Cell, find_parameter_cells
from compiler.ir.diagnose import span_of
from compiler.ir.instructions import Evaluate, Gradient, Instruction
from compiler.ir.mode_graph import ModeGraph
from compiler.ir.step_graph import GradientPath, StepGraph
from compiler.ir.value import Derivative, Ref
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import UpdateOp
from graphspec.diagnostics import Diagnostic

REGRESSIONS = frozenset({"mse", "l1", "huber"})
"""Losses whose second operand is a target."""


def check_terms(scene: ModeGraph) -> Iterator[Diagnostic]:
    """Yield E-NO-GRADIENT for an additive term of a loss that reaches no target of any gradient of that loss."""
    paths = scene.paths
    users: dict[str, list[str]] = {}
    for node, derivative in scene.gradients():
        users.setdefault(derivative.loss, []).append(node.id)
    for loss, names in users.items():
        reached = frozenset[str]().union(*(paths[name].nodes for name in names))
        if not reached or any(_is_weighted(scene.nodes[name]) for name in names):
            continue  # the targets are checked instead; what has `grad_outputs` is no sum of terms
        targets = sorted({model for name in names for model in _target_names(scene.nodes[name])})
        for term in find_terms(scene, loss, frozenset(targets)):
            producer = scene.producers.get(term)
            if producer not in reached:
                yield _no_gradient(scene, names[0], loss, term, targets)


def _is_weighted(node: Instruction) -> bool:
    """Return whether a gradient is one of values that `grad_outputs` multiply."""
    return isinstance(node, Gradient) and bool(node.grad_outputs)


def _no_gradient(scene: ModeGraph, gradient: str, loss: str, term: str, targets: list[str]) -> Diagnostic:
    """Return the diagnostic of a term without gradient."""
    op = scene.nodes[gradient].op
    loss, term = _written(scene, loss), _written(scene, term)
    what = f"'{loss}'" if term == loss else f"the term '{term}' of '{loss}'"
    return Diagnostic(
        code="E-NO-GRADIENT",
        message=f"{what} does not depend on {_either(targets)}, so no gradient of it reaches them",
        span=span_of(scene.spec, op, "loss"),
        label=f"used by '{op}'",
        help="check the inputs of the loss, and `stop` on the way from the model to it",
    )


def check_targets(scene: ModeGraph) -> Iterator[Diagnostic]:
    """Yield E-NO-GRADIENT for a target that a gradient's loss does not depend on, unless `unconnected` allows it."""
    paths = scene.paths
    for node, derivative, shares in _group_shares(scene):
        if _takes_gaps(node):
            continue
        cells, values = _find_reached(scene, [paths[each] for each in shares])
        for model in derivative.models:
            if not cells.intersection(scene.models[model].cells):
                yield _unreached(scene, node, derivative, f"model '{model}'")
        for value in derivative.values:
            if value not in values:
                yield _unreached(scene, node, derivative, f"value '{value}'")


def check_left_targets(spec: GraphSpec, graph: StepGraph) -> Iterator[Diagnostic]:
    """Yield E-NO-GRADIENT for a target that only terms reach that are absent in a step that updates it."""
    for name, path in graph.paths.items():
        node = graph.nodes[name]
        if node.derivative is None or not _lacks_terms(spec, graph, node.derivative.loss) or _takes_gaps(node):
            continue
        cells = {read.cell for each in path.nodes for read in graph.nodes[each].reads}
        for model in node.derivative.models:
            if cells.isdisjoint(find_parameter_cells(spec)[model]):
                yield _left(spec, node, model)


def _lacks_terms(spec: GraphSpec, graph: StepGraph, loss: str) -> bool:
    """Return whether some term of a loss is absent among the ops that fire together."""
    return any(term in spec.ops and term not in graph.nodes for term in find_terms_of(spec, loss))


def _takes_gaps(node: Instruction) -> bool:
    """Return whether a gradient says what to do with parameters that it does not reach."""
    return isinstance(node, Gradient) and node.unconnected != "error"


def _left(spec: GraphSpec, node: Instruction, model: str) -> Diagnostic:
    """Return the diagnostic of a target without a gradient in some steps."""
    return Diagnostic(
        code="E-NO-GRADIENT",
        message=f"'{node.op}' has no gradient for model '{model}' in the steps in which a lazy term is absent",
        span=span_of(spec, node.op, "update"),
        label="only that term depends on the model",
        help=f"write `missing: skip` or `missing: zero`, or update '{model}' by an op of its own with the term's clock",
    )


def _group_shares(scene: ModeGraph) -> Iterator[tuple[Instruction, Derivative, tuple[str, ...]]]:
    """Yield every gradient with itself, and the first of those of a loss whose terms count differently with all."""
    together: dict[tuple[str, ...], list[str]] = {}
    found: list[tuple[Instruction, Derivative, tuple[str, ...]]] = []
    for node, derivative in scene.gradients():
        is_share = isinstance(node, Gradient) and bool(node.term)
        key = (node.op, *derivative.models) if is_share else (node.id,)
        if key not in together:
            found.append((node, derivative, key))
        together.setdefault(key, []).append(node.id)
    yield from ((node, derivative, tuple(together[key])) for node, derivative, key in found)


def _find_reached(scene: ModeGraph, paths: Sequence[GradientPath]) -> tuple[frozenset[Cell], frozenset[str]]:
    """Return the cells that nodes on some paths read, and the values that run along them."""
    cells = frozenset(read.cell for path in paths for name in path.nodes for read in scene.nodes[name].reads)
    return cells, frozenset(value for path in paths for value, _ in path.uses)


def _unreached(scene: ModeGraph, node: Instruction, derivative: Derivative, target: str) -> Diagnostic:
    """Return the diagnostic of a target that no term reaches."""
    field = "update" if isinstance(scene.spec.ops[node.op], UpdateOp) else "wrt"
    loss = _written(scene, derivative.loss)
    return Diagnostic(
        code="E-NO-GRADIENT",
        message=f"'{node.op}' wants the gradient of '{loss}' for {target}, on which it does not depend",
        span=span_of(scene.spec, node.op, field),
        label=f"'{loss}' does not reach it",
        help=f"use a loss that is computed from {target}, or look for a `stop` on the way from it to '{loss}'",
    )


def _written(scene: ModeGraph, value: str) -> str:
    """Return the name of a value in the spec: of what lowering makes of a loss, such as its sum, the loss."""
    producer = scene.producers.get(value)
    op = "" if producer is None else scene.nodes[producer].op
    return value if producer is None or value in scene.spec.ops[op].defines(op) else op


def find_terms(scene: ModeGraph, loss: str, targets: frozenset[str]) -> tuple[str, ...]:
    """Return the terms that a loss sums; `add`, `sub`, and constant factors keep terms separate.

    A term that is a target itself is left out: the loss depends on it regardless of how it is computed.
    """
    terms: dict[str, None] = {}
    pending = [loss]
    while pending:
        value = pending.pop(0)
        if value in targets:
            continue
        parts = _find_parts(scene, value)
        pending.extend(parts)
        if not parts:
            terms[value] = None
    return tuple(terms)


def _find_parts(scene: ModeGraph, value: str) -> tuple[str, ...]:
    """Return the operands of `add`, `sub` or a constant multiple; none for other values."""
    producer = scene.producers.get(value)
    instruction = None if producer is None else scene.nodes[producer]
    if not isinstance(instruction, Evaluate) or not instruction.function.builtin or instruction.family != "call":
        return ()
    operands = [argument.operand for argument in instruction.arguments]
    values = tuple(operand.name for operand in operands if isinstance(operand, Ref))
    name = instruction.function.name
    return values if name in ADDITIVE or (name in SCALING and len(values) == 1) else ()


def check_bootstrap(scene: ModeGraph) -> Iterator[Diagnostic]:
    """Yield W-TARGET where a model is called twice in one regression loss, once for the target, without `stop`."""
    paths, producers = scene.paths, scene.producers
    for node, derivative in scene.gradients():
        for name in sorted(paths[node.id].nodes & scene.nodes.keys()):
            instruction = scene.nodes[name]
            if not (isinstance(instruction, Evaluate) and instruction.function.name in REGRESSIONS):
                continue
            sides = [_find_called(scene, name, index, derivative, paths[node.id], producers) for index in (0, 1)]
            twice = {model for model in sides[0] if model in sides[1] and sides[1][model] - sides[0][model]}
            if twice:
                yield _bootstrap(scene, name, sorted(twice)[0])


def _find_called(
    scene: ModeGraph, loss: str, index: int, derivative: Derivative, path: GradientPath, producers: Mapping[str, str]
) -> Mapping[str, frozenset[str]]:
    """Return, by target model, the forwards that one operand of a loss is computed from."""
    instruction = scene.nodes[loss]
    assert isinstance(instruction, Evaluate)
    operand = instruction.arguments[index].operand if index < len(instruction.arguments) else None
    pending = [operand.name] if isinstance(operand, Ref) else []
    called: dict[str, frozenset[str]] = {}
    while pending:
        value = pending.pop()
        producer = producers.get(value)
        if producer is None or producer not in path.nodes:
            continue
        node = scene.nodes[producer]
        if node.called in derivative.models:
            called[node.called] = called.get(node.called, frozenset()) | {producer}
        pending.extend(use.value for use in node.uses if use.differentiable)
    return called


def _bootstrap(scene: ModeGraph, loss: str, model: str) -> Diagnostic:
    """Return the warning about a target that moves with the prediction."""
    return Diagnostic(
        code="W-TARGET",
        severity="warning",
        message=f"'{loss}' compares '{model}' with a target that '{model}' computes too, and both get gradients",
        span=span_of(scene.spec, scene.nodes[loss].op, "inputs"),
        label="the second input is a target",
        help="write `stop: true` on the forward of the target if it is a constant for this gradient",
    )


def _target_names(node: Instruction) -> tuple[str, ...]:
    """Return the models and values a node differentiates with respect to."""
    return () if node.derivative is None else (*node.derivative.models, *node.derivative.values)


def _either(names: list[str]) -> str:
    """Return names joined by "or"."""
    quoted = [f"'{name}'" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
