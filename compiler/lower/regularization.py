"""Regularization: the slopes of a model's penalties, added to the gradients of one of its updates in a step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from compiler.facts.optimizers import is_kept
from compiler.ir.digraph import Causality
from compiler.ir.instructions import Apply, Commit, Instruction, Judge, Transform
from compiler.ir.value import Read, Scheduled, Use
from compiler.ir.weight_terms import Penalty, Projection
from compiler.lower.context import Lowering
from compiler.lower.transform import transform_node
from compiler.passes.commits import assume, either
from compiler.passes.presence import find_open
from graphspec.declare.ops import UpdateOp
from graphspec.declare.parameters import ConstraintSpec, RegularizerSpec


def regularize(
    name: str, op: UpdateOp, sets: Mapping[str, tuple[str, ...]], context: Lowering, gaps: frozenset[str]
) -> tuple[tuple[Instruction, ...], Mapping[str, tuple[str, ...]]]:
    """Return what adds penalties to the gradient sets of an update, model by model, and the sets that it uses then."""
    kept = (model for model in op.update if is_kept(context.spec, name, model))
    penalized = [model for model in kept if _find_terms(model, context)]
    nodes: list[Instruction] = []
    found = dict(sets)
    for model in penalized:
        value = next((each for each, models in found.items() if model in models), None)
        if value is not None:
            target = f"{name}.regularized" if len(penalized) == 1 else f"{name}.regularized.{model}"
            has_gaps = value in gaps | find_open(nodes)
            nodes.append(_node(target, name, value, found[value], model, context, has_gaps))
            found = {target if each == value else each: models for each, models in found.items()}
    return tuple(nodes), found


def _node(
    target: str, op: str, value: str, models: tuple[str, ...], model: str, context: Lowering, gaps: bool
) -> Transform:
    """Return the node that adds the penalties of a model to a set: it reads the weights of its causal past."""
    penalties = tuple(_penalties(op, model, context))
    node = transform_node(
        target,
        op=op,
        function="regularize",
        inputs=(value,),
        models=models,
        penalties=penalties,
        context=context,
        gaps=gaps,
    )
    weights = tuple(Read(cell=cell, constant=True) for cell in context.cells((model,)))
    return replace(node, reads=(*weights, *node.reads))


def _penalties(op: str, model: str, context: Lowering) -> Iterator[Penalty]:
    """Yield the penalties of a model in one of its updates."""
    for index, each in enumerate(_find_terms(model, context)):
        yield _penalty(model, each, context, (op, model, "regularizer", index))


def _find_terms(model: str, context: Lowering) -> tuple[RegularizerSpec, ...]:
    """Return the regularizers of a model: those of the spec, then those that it brings along."""
    return (*(context.spec.models[model].regularizer or ()), *context.models[model].terms.regularizers)


def _penalty(model: str, declared: RegularizerSpec, context: Lowering, place: tuple[str | int, ...]) -> Penalty:
    """Return one penalty."""
    return Penalty(
        model=model,
        match=declared.match,
        l1=context.number(declared.l1 or 0.0, *place, "l1"),
        l2=context.number(declared.l2 or 0.0, *place, "l2"),
        function=None if declared.function is None else declared.function.name(context.backend),
    )


def penalize_once(
    nodes: Mapping[str, Instruction], causality: Causality, find_commit: Callable[[str], Commit]
) -> Mapping[str, Instruction]:
    """Return the nodes that fire together, with each model's penalties in the first of its updates that is applied.

    Updates of one model have an order: that of their writes. An update whose predecessors may all be held adds the
    penalties where they are (``find_commit``: the verdicts under which an update is applied); one that is never applied
    without one of them does not have them. Where such a node goes, its input takes the place of its value.
    """
    holders = [node for node in nodes.values() if isinstance(node, Transform) and node.penalizes is not None]
    earlier: dict[str | None, Commit] = {}
    gone: dict[str, str] = {}
    found = dict(nodes)
    for node in sorted(holders, key=lambda each: len(causality.past(each.op, nodes))):
        commit = find_commit(node.op)
        before = earlier.get(node.penalizes)
        if before is not None:
            open_ways = assume(before, commit)
            if not all(open_ways):
                gone[node.id] = node.uses[0].value
                continue
            found[node.id] = _add_unless(node, open_ways)
        earlier[node.penalizes] = commit if before is None else either([before, commit])
    return {name: _replace_values(node, gone) for name, node in found.items() if name not in gone} if gone else found


def _add_unless(node: Transform, commit: Commit) -> Transform:
    """Return a node that adds penalties only where earlier updates of the model are not applied."""
    verdicts = dict.fromkeys(verdict for way in commit for verdict in way)
    uses = (*node.uses, *(Use(value=each, differentiable=False) for each in verdicts))
    return replace(node, unless=commit, uses=uses)


def _replace_values(node: Instruction, others: Mapping[str, str]) -> Instruction:
    """Return a node with other gradient sets in the place of some, which may be replaced themselves."""

    def find(value: str) -> str:
        """Return the replacement of a value."""
        return find(others[value]) if value in others else value

    if not any(use.value in others for use in node.uses):
        return node
    uses = tuple(replace(use, value=find(use.value)) for use in node.uses)
    match node:
        case Transform():
            return replace(node, uses=uses, inputs=tuple(map(find, node.inputs)))
        case Judge():
            return replace(node, uses=uses, gradients=tuple(map(find, node.gradients)))
        case Apply():
            parts = (replace(part, gradients=find(part.gradients)) for part in node.parts)
            return replace(node, uses=uses, parts=tuple(parts))
        case _:
            return replace(node, uses=uses)


def find_projections(name: str, op: UpdateOp, models: Collection[str], context: Lowering) -> Iterator[Projection]:
    """Yield what the parameters of those models that an update steps are made to satisfy then, in order."""
    for model in (each for each in op.update if each in models):
        written = op.constraint or context.spec.models[model].constraint or ()
        for index, each in enumerate((*written, *context.models[model].terms.constraints)):
            yield _project(model, each, context, (name, model, "constraint", index))


def _project(model: str, declared: ConstraintSpec, context: Lowering, place: tuple[str | int, ...]) -> Projection:
    """Return one constraint as it applies to a model."""
    low, high = _find_limits(declared, context, place)
    axis = declared.axis
    return Projection(
        model=model,
        kind=declared.kind,
        match=declared.match,
        low=low,
        high=high,
        axis=(axis,) if isinstance(axis, int) else axis,
        function="" if declared.function is None else declared.function.name(context.backend),
    )


def _find_limits(
    declared: ConstraintSpec, context: Lowering, place: tuple[str | int, ...]
) -> tuple[float | Scheduled, float | Scheduled]:
    """Return the numbers of a constraint that has some."""
    if declared.clip is not None:
        low, high = (context.number(each, *place, "clip", end) for end, each in enumerate(declared.clip))
        return low, high
    return 0.0, context.number(declared.max_norm or 0.0, *place, "max_norm")
