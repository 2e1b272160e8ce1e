"""Regularization: the slopes of a model's penalties, added to the gradients of one of its updates in a step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from msgspec.structs import replace

from compiler.facts.steppers import is_kept
from compiler.ir.digraph import Causality
from compiler.ir.instructions import AnyFinite, Apply, CheckFinite, Commit, Instruction, Transform
from compiler.ir.instructions.base import find_verdicts
from compiler.ir.value import Read, Use
from compiler.ir.weight_terms import Penalty, Projection
from compiler.lower.context import LoweringContext
from compiler.lower.transform import transform_node
from compiler.passes.commits import Conditions, assume, either, list_among
from compiler.passes.presence import find_open
from graphspec.declare.ops import UpdateOp
from graphspec.declare.parameters import RegularizerSpec

MOST = 4
"""The most ways in which earlier updates are applied that an update lists one by one."""


def regularize(
    name: str, op: UpdateOp, sets: Mapping[str, tuple[str, ...]], context: LoweringContext, may_miss: frozenset[str]
) -> tuple[tuple[Instruction, ...], Mapping[str, tuple[str, ...]]]:
    """Return the nodes that add penalties to the gradient sets of an update, model by model, and the resulting sets."""
    penalized: dict[str, tuple[RegularizerSpec, ...]] = {}
    for model in op.update:
        # the regularizers of the spec, then those that the model brings along
        terms = (*(context.spec.models[model].regularizer or ()), *context.models[model].terms.regularizers)
        if terms and is_kept(context.spec, name, model):
            penalized[model] = terms
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
    if not holders:
        return nodes
    present = causality.collect(name for name in nodes if name in causality.places)
    holders.sort(key=lambda each: causality.meet(each.op, present)[1].bit_count())
    commits = {node.id: conditions.find(node.op) for node in holders}
    to_come = {node.penalizes: Counter[str]() for node in holders}
    for node in holders:
        to_come[node.penalizes].update(find_verdicts(commits[node.id]))
    earlier: dict[str | None, Commit] = {}
    gone: dict[str, str] = {}
    joined: dict[str, AnyFinite] = {}
    found = dict(nodes)
    for node in holders:
        commit, before = commits[node.id], earlier.get(node.penalizes)
        if before is not None and all(assume(before, commit)):
            before, made = _join_ways(before, node, to_come[node.penalizes])
            joined |= made
            found[node.id] = _add_unless(node, assume(before, commit))
        elif before is not None:
            gone[node.id] = node.uses[0].value
        if node.id not in gone:
            earlier[node.penalizes] = commit if before is None else either([before, commit])
        to_come[node.penalizes].subtract(find_verdicts(commit))
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
    listed: dict[str, Instruction] = {}
    for name, node in found.items():
        listed |= {joined[name].id: joined[name], name: node} if name in joined else {name: node}
    used = {verdict for node in listed.values() for verdict in node.skipped_by}
    used.update(verdict for each in joined.values() for verdict in each.operands)
    return list_among(listed, conditions.find_combined(used))


def _join_ways(before: Commit, node: Transform, to_come: Mapping[str, int]) -> tuple[Commit, Mapping[str, AnyFinite]]:
    """Return a condition with its ways joined, if they are many, by the node that they are joined for.

    A verdict under which a later update takes place, too, stays as it is: what it decides there must be seen.
    """
    ways = tuple(way for way in before if not any(to_come[verdict] for verdict in way))
    if len(ways) <= MOST:
        return before, {}
    output = f"{node.penalizes}.penalized#{node.op}"  # the name of no op
    made = AnyFinite(
        id=output,
        op=node.op,
        label=f"verdict {output}",
        place=node.place,
        gate=node.gate,
        within=node.within,
        uses=_use(find_verdicts(ways)),
        differentiable=False,
        output=output,
        ways=ways,
    )
    return ((output,), *(way for way in before if way not in ways)), {node.id: made}


def _add_unless(node: Transform, commit: Commit) -> Transform:
    """Return a node that adds penalties only where earlier updates of the model are not applied."""
    return replace(node, unless=commit, uses=(*node.uses, *_use(find_verdicts(commit))))


def _use(verdicts: Collection[str]) -> tuple[Use, ...]:
    """Return the uses of verdicts."""
    return tuple(Use(value=each, differentiable=False) for each in verdicts)


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
