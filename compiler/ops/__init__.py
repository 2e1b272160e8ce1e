"""Lowering of ops to nodes: one function per kind, one case here."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from compiler.ir import Node
from compiler.ops.assign import lower_assign
from compiler.ops.average import lower_copy, lower_ema
from compiler.ops.context import Lowering
from compiler.ops.evaluate import lower_call, lower_loss, lower_metric
from compiler.ops.forward import lower_forward
from compiler.ops.gradient import lower_gradient
from compiler.ops.random import lower_random
from compiler.ops.reading import read_states
from compiler.ops.schedule import lower_schedule
from compiler.ops.transform import lower_transform
from compiler.ops.update import lower_update
from graphspec.ops import (
    AssignOp,
    CallOp,
    CopyOp,
    EmaOp,
    ForwardOp,
    GradientOp,
    LossOp,
    MetricOp,
    Op,
    RandomOp,
    ScheduleOp,
    TransformOp,
    UpdateOp,
)


def lower_op(name: str, op: Op, context: Lowering) -> tuple[Node, ...]:
    """Return the nodes of an op, the one that carries the op's name last."""
    paced = op.every if isinstance(op.every, str) else ""
    nodes = (replace(node, paced=paced) if node.eager else node for node in _lower(name, op, context))
    return tuple(read_states(node, context.spec.state) for node in nodes)


def _lower(name: str, op: Op, context: Lowering) -> tuple[Node, ...]:
    """Return the nodes of an op as its kind makes them."""
    match op:
        case ForwardOp():
            return lower_forward(name, op, context)
        case CallOp():
            return lower_call(name, op, context)
        case RandomOp():
            return lower_random(name, op, context)
        case ScheduleOp():
            return lower_schedule(name, op, context)
        case LossOp():
            return lower_loss(name, op, context)
        case GradientOp():
            return lower_gradient(name, op, context)
        case TransformOp():
            return lower_transform(name, op, context)
        case UpdateOp():
            return lower_update(name, op, context)
        case EmaOp():
            return lower_ema(name, op, context)
        case CopyOp():
            return lower_copy(name, op, context)
        case MetricOp():
            return lower_metric(name, op, context)
        case AssignOp():
            return lower_assign(name, op, context)
        case _:
            assert_never(op)
