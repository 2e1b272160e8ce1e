"""Regularization: the slopes of a model's penalties, added to the gradients of one of its updates in a step."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from msgspec.structs import replace

from compiler.facts.steppers import is_kept
from compiler.ir.digraph import NOTHING, Causality
from compiler.ir.instructions import Apply, CheckFinite, Commit, Instruction, Transform
from compiler.ir.value import Read, Use
from compiler.ir.weight_terms import Penalty, Projection
from compiler.lower.context import LoweringContext
from compiler.lower.transform import transform_node
from compiler.passes.commits import Conditions, assume, either
from compiler.passes.presence import find_open
from graphspec.declare.ops import UpdateOp


def regularize(
    name: str, op: UpdateOp, sets: Mapping[str, tuple[str, ...]], context: LoweringContext, may_miss: frozenset[str]
) -> tuple[tuple[Instruction, ...], Mapping[str, tuple[str, ...]]]:
    """Return the nodes that add penalties to the gradient sets of an update, model by model, and the resulting sets."""
    kept = (model for model in op.update if is_kept(context.spec, name, model))
    # the regularizers of the spec, then those that the model brings along
    brought = {
        model: (*(context.spec.models[model].regularizer or ()), *context.models[model].terms.regularizers)
        for model in kept
    }
    penalized = {model: terms for model, terms in brought.items() if terms}
    nodes: list[Instruction] = []
    found = dict(sets)
    for model, terms in penalized.items():
        value = next((each for each, models in found.items() if model in models), None)
        if value is not None:
            target = f"{name}.regularized" if len(penalized) == 1 else f"{name}.regularized.{model}"
            node = transform_node(
                target,
                op=name,
                function="regularize",
                inputs=(value,),
                models=found[value],
                penalties=tuple(
                    Penalty(
                        model=model,
                        match=declared.match,
                        l1=context.number(declared.l1 or 0.0, name, model, "regularizer", index, "l1"),
                        l2=context.number(declared.l2 or 0.0, name, model, "regularizer", index, "l2"),
                        function=None if declared.function is None else declared.function.name(context.backend),
                    )
                    for index, declared in enumerate(terms)
                ),
                context=context,
                may_miss=value in may_miss | find_open(nodes),
            )
            # it reads the weights of its causal past
            weights = tuple(Read(cell=cell, constant=True) for cell in context.cells((model,)))
            nodes.append(replace(node, reads=(*weights, *node.reads)))
            found = {target if each == value else each: models for each, models in found.items()}
    return tuple(nodes), found


def penalize_once(
    nodes: Mapping[str, Instruction], causality: Causality, conditions: Conditions
) -> Mapping[str, Instruction]:
    """Return the nodes that fire together, with each model's penalties in the first of its updates that is applied.

    Updates of one model have an order: that of their writes. An update whose predecessors may all be held adds the
    penalties where they are; one that is never applied without one of them adds none. Where such a node is left out,
    its input replaces its value.
    """
    holders = [node for node in nodes.values() if isinstance(node, Transform) and node.penalizes is not None]
    earlier: dict[str | None, Commit] = {}
    gone: dict[str, str] = {}
    found = dict(nodes)
    present = causality.collect(name for name in nodes if name in causality.places) if holders else NOTHING
    for node in sorted(holders, key=lambda each: causality.meet(each.op, present)[1].bit_count()):
        commit = conditions.find(node.op)
        before = earlier.get(node.penalizes)
        if before is not None:
            open_ways = assume(before, commit)
            if not all(open_ways):
                gone[node.id] = node.uses[0].value
                continue
            found[node.id] = _add_unless(node, conditions.spell_out(open_ways))
        earlier[node.penalizes] = commit if before is None else either([before, commit])
    for name, value in gone.items():
        del found[name]
        while value in gone:  # the input of one may be another of them
            value = gone[value]
        gone[name] = value
    for name, node in found.items():
        if not any(use.value in gone for use in node.uses):
            continue
        uses = tuple(replace(use, value=gone.get(use.value, use.value)) for use in node.uses)
        match node:
            case Transform():
                found[name] = replace(node, uses=uses, inputs=tuple(gone.get(each, each) for each in node.inputs))
            case CheckFinite():
                gradients = tuple(gone.get(each, each) for each in node.gradients)
                found[name] = replace(node, uses=uses, gradients=gradients)
            case Apply():
                parts = (replace(each, gradients=gone.get(each.gradients, each.gradients)) for each in node.parts)
                found[name] = replace(node, uses=uses, parts=tuple(parts))
            case _:
                found[name] = replace(node, uses=uses)
    return found


def _add_unless(node: Transform, commit: Commit) -> Transform:
    """Return a node that adds penalties only where earlier updates of the model are not applied."""
    verdicts = dict.fromkeys(verdict for way in commit for verdict in way)
    uses = (*node.uses, *(Use(value=each, differentiable=False) for each in verdicts))
    return replace(node, unless=commit, uses=uses)


def find_projections(
    name: str, op: UpdateOp, models: Collection[str], context: LoweringContext
) -> Iterator[Projection]:
    """Yield the constraints that are applied, in order, to the models that an update steps."""
    for model in (each for each in op.update if each in models):
        written = op.constraint or context.spec.models[model].constraint or ()
        for index, each in enumerate((*written, *context.models[model].terms.constraints)):
            place = (name, model, "constraint", index)
            low, high = 0.0, context.number(each.max_norm or 0.0, *place, "max_norm")
            if each.clip is not None:
                low, high = (context.number(end, *place, "clip", at) for at, end in enumerate(each.clip))
            yield Projection(
                model=model,
                kind=each.kind,
                match=each.match,
                low=low,
                high=high,
                axis=(each.axis,) if isinstance(each.axis, int) else each.axis,
                function="" if each.function is None else each.function.name(context.backend),
            )
