"""Lowering of the pure ops: ``call``, ``loss`` and ``metric``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from compiler.ir import Node
from compiler.ops.context import Lowering, freeze_options, lower_inputs, uses_of
from compiler.ops.transform import transform_node
from compiler.program import Evaluate, FunctionRef, Plain
from graphspec.functions import FunctionName
from graphspec.inputs import Inputs
from graphspec.ops import CallOp, LossOp, MetricOp

CONSTANT_CALLS = frozenset({"stop", "argmax", "one_hot"})
"""Built-in calls whose results carry no gradient."""


def lower_call(name: str, op: CallOp, context: Lowering) -> tuple[Node, ...]:
    """Return the one node of a call; on gradient sets it is a transform."""
    if name in context.sets:
        return (_lower_on_sets(name, op, context),)
    differentiable = op.call.name(context.backend) not in CONSTANT_CALLS
    return (
        _evaluate(name, "call", op.call, op.inputs, freeze_options(op.args), op.defines(name), context, differentiable),
    )


def _lower_on_sets(name: str, op: CallOp, context: Lowering) -> Node:
    """Return the transform that `add`, `mul` and `lerp` are on gradient sets; numbers become its factors."""
    operands = op.inputs.positional
    factors = tuple(operand for operand in operands if not isinstance(operand, str))
    return transform_node(
        name,
        op=name,
        function=FunctionRef(name=f"{op.call.name(context.backend)}_sets", builtin=True),
        inputs=tuple(operand for operand in operands if isinstance(operand, str)),
        models=context.sets[name],
        options={"factors": factors} if factors else {},
        place=context.place(name),
    )


def lower_loss(name: str, op: LossOp, context: Lowering) -> tuple[Node, ...]:
    """Return the one node of a loss."""
    node = _evaluate(name, "loss", op.loss, op.inputs, freeze_options(op.args), op.defines(name), context, True)
    return (_with_weighting(node, weight=op.weight, reduction=op.reduction),)


def lower_metric(name: str, op: MetricOp, context: Lowering) -> tuple[Node, ...]:
    """Return the one node of a metric, whose value is no function of the weights for any gradient."""
    node = _evaluate(name, "metric", op.metric, op.inputs, freeze_options(op.args), op.defines(name), context, False)
    assert isinstance(node.instruction, Evaluate)
    return (replace(node, instruction=replace(node.instruction, reset=op.window)),)


def _evaluate(
    name: str,
    family: Literal["call", "loss", "metric"],
    function: FunctionName,
    inputs: Inputs,
    options: Mapping[str, Plain],
    outputs: tuple[str, ...],
    context: Lowering,
    differentiable: bool,
) -> Node:
    """Return the node of a pure function."""
    arguments = lower_inputs(inputs)
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


def _with_weighting(node: Node, *, weight: float | None, reduction: str | None) -> Node:
    """Return the node of a loss with its weight and reduction."""
    assert isinstance(node.instruction, Evaluate)
    return replace(node, instruction=replace(node.instruction, weight=weight, reduction=reduction))
