"""Lowering of the pure ops: ``call``, ``loss`` and ``metric``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Literal

from compiler.instructions import CONSTANT_CALLS, Evaluate
from compiler.ir import Node
from compiler.operands import Scheduled, Setting
from compiler.ops.context import Lowering, lower_inputs, uses_of
from compiler.ops.transform import transform_node
from compiler.parts.making import evaluate
from compiler.resets import find_reset
from graphspec.functions import FunctionName
from graphspec.inputs import Inputs
from graphspec.ops import CallOp, LossOp, MetricOp


def lower_call(name: str, op: CallOp, context: Lowering) -> tuple[Node, ...]:
    """Return the one node of a call; on gradient sets it is a transform."""
    if name in context.sets:
        return (_lower_on_sets(name, op, context),)
    differentiable = op.call.name(context.backend) not in CONSTANT_CALLS
    node = _evaluate(
        name, "call", op.call, op.inputs, context.settings(op.args, name), op.defines(name), context, differentiable
    )
    return (_with_optional(node, context.lazy) if op.call.name(context.backend) == "add" else node,)


def _with_optional(node: Node, lazy: Collection[str]) -> Node:
    """Return the node of a sum that does without lazy terms in the steps in which they are absent."""
    return replace(node, uses=tuple(replace(use, optional=use.value in lazy) for use in node.uses))


def _lower_on_sets(name: str, op: CallOp, context: Lowering) -> Node:
    """Return the transform that `add`, `mul` and `lerp` are on gradient sets; numbers become its factors."""
    operands = op.inputs.positional
    factors = tuple(
        context.number(operand, name, "inputs", place)
        for place, operand in enumerate(operands)
        if not isinstance(operand, str)
    )
    inputs = tuple(operand for operand in operands if isinstance(operand, str))
    return transform_node(
        name,
        op=name,
        function=f"{op.call.name(context.backend)}_sets",
        inputs=inputs,
        models=context.sets[name],
        options={"factors": factors} if factors else {},
        context=context,
        gaps=not context.gaps.isdisjoint(inputs),
    )


def lower_loss(name: str, op: LossOp, context: Lowering) -> tuple[Node, ...]:
    """Return the one node of a loss; of one whose sum and count are kept apart a second, which makes a mean of them."""
    node = _evaluate(name, "loss", op.loss, op.inputs, context.settings(op.args, name), op.defines(name), context, True)
    weight = None if op.weight is None else context.number(op.weight, name, "weight")
    weighted = _with_weighting(node, weight=weight, reduction=op.reduction)
    assert isinstance(weighted.instruction, Evaluate)
    here = [terms for each, terms in context.gathering.items() if context.mode in context.reaches[each].modes]
    gathered = any(name in terms for terms in here)
    whole = replace(weighted.instruction, times=op.times, gathered=gathered, open=name in context.open)
    if name not in context.counted:
        return (replace(weighted, instruction=whole),)
    outputs = sum_of(name), count_of(name)
    counted = replace(whole, outputs=outputs, counted=context.counted[name], gathered=False)
    return replace(weighted, instruction=counted, defines=outputs), _lower_mean(name, context)


def _lower_mean(name: str, context: Lowering) -> Node:
    """Return what divides the sum of a loss by its count."""
    operands = sum_of(name), count_of(name)
    node = evaluate(f"{name}.mean", "quotient", operands, (name,), op=name, place=context.place(name))
    uses = (node.uses[0], replace(node.uses[1], differentiable=False))
    return replace(node, label=f"mean of {name}", uses=uses, beside=True)


def sum_of(loss: str) -> str:
    """Return what the sum of a loss is called that counts by itself."""
    return f"{loss}.sum"


def count_of(loss: str) -> str:
    """Return what its count is called."""
    return f"{loss}.count"


def lower_metric(name: str, op: MetricOp, context: Lowering) -> tuple[Node, ...]:
    """Return the one node of a metric, whose value is no function of the weights for any gradient."""
    options = context.settings(op.args, name)
    node = _evaluate(name, "metric", op.metric, op.inputs, options, op.defines(name), context, False)
    assert isinstance(node.instruction, Evaluate)
    return (replace(node, instruction=replace(node.instruction, reset=find_reset(op, context.mode, context.pace))),)


def _evaluate(
    name: str,
    family: Literal["call", "loss", "metric"],
    function: FunctionName,
    inputs: Inputs,
    options: Mapping[str, Setting],
    outputs: tuple[str, ...],
    context: Lowering,
    differentiable: bool,
) -> Node:
    """Return the node of a pure function."""
    arguments = lower_inputs(name, inputs, context)
    instruction = Evaluate(
        op=name,
        place=context.place(name),
        family=family,
        function=context.function(function),
        arguments=arguments,
        options=options,
        outputs=outputs,
    )
    return Node(
        id=name,
        op=name,
        instruction=instruction,
        label=f"{family} {name}",
        uses=uses_of(arguments, differentiable=differentiable),
        defines=outputs,
        differentiable=differentiable,
        place=instruction.place,
    )


def _with_weighting(node: Node, *, weight: float | Scheduled | None, reduction: str | None) -> Node:
    """Return the node of a loss with its weight and reduction."""
    assert isinstance(node.instruction, Evaluate)
    return replace(node, instruction=replace(node.instruction, weight=weight, reduction=reduction))
