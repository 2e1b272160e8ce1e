"""Lowering of ops to instructions: one function per kind, one line each in :data:`LOWERINGS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

from msgspec.structs import replace

from compiler.ir.instructions import Instruction
from compiler.lower.adapt import lower_adapt
from compiler.lower.average import lower_assign, lower_copy, lower_ema
from compiler.lower.context import LoweringContext, read_states
from compiler.lower.evaluate import lower_call, lower_forward, lower_loss, lower_metric, lower_random, lower_schedule
from compiler.lower.gradient import lower_gradient
from compiler.lower.transform import lower_transform
from compiler.lower.update import lower_update
from graphspec.declare.ops import (
    AdaptOp,
    AssignOp,
    CallOp,
    CopyOp,
    EmaOp,
    ForwardOp,
    GradientOp,
    LossOp,
    MetricOp,
    Op,
    OpBase,
    RandomOp,
    ScheduleOp,
    TransformOp,
    UpdateOp,
)
from graphspec.declare.parts import find_gate

Kind = TypeVar("Kind", bound=OpBase)
OpLowering: TypeAlias = Callable[[str, OpBase, LoweringContext], tuple[Instruction, ...]]


def lower_op(name: str, op: Op, context: LoweringContext) -> tuple[Instruction, ...]:
    """Return the instructions of an op, the one that carries the op's name last."""
    gated_by = op.every if isinstance(op.every, str) else ""
    nodes = LOWERINGS[type(op)](name, op, context)
    if gated_by:
        nodes = tuple(replace(node, gated_by=gated_by) if node.is_write else node for node in nodes)
    if op.within:
        # A write has a gate of its own, which opens with that of its part: what follows it asks when it fires.
        part, is_timed = find_gate(op.within), op.every is not None or op.start is not None or op.until is not None
        is_own = part is None or is_timed or any(node.is_write for node in nodes)
        gate = "" if is_own or part is None else part.name
        nodes = tuple(replace(node, within=op.within, gate=node.gate or gate) for node in nodes)
    return tuple(read_states(node, context.spec.state) for node in nodes)


def _row(
    kind: type[Kind], lowering: Callable[[str, Kind, LoweringContext], tuple[Instruction, ...]]
) -> tuple[type[OpBase], OpLowering]:
    """Return a row of the table."""

    def apply(name: str, op: OpBase, context: LoweringContext) -> tuple[Instruction, ...]:
        """Lower an op, which is of this kind."""
        assert isinstance(op, kind)
        return lowering(name, op, context)

    return kind, apply


LOWERINGS: Mapping[type[OpBase], OpLowering] = dict(
    (
        _row(ForwardOp, lower_forward),
        _row(CallOp, lower_call),
        _row(RandomOp, lower_random),
        _row(ScheduleOp, lower_schedule),
        _row(LossOp, lower_loss),
        _row(GradientOp, lower_gradient),
        _row(TransformOp, lower_transform),
        _row(UpdateOp, lower_update),
        _row(EmaOp, lower_ema),
        _row(CopyOp, lower_copy),
        _row(MetricOp, lower_metric),
        _row(AssignOp, lower_assign),
        _row(AdaptOp, lower_adapt),
    )
)
"""The kinds of ops: one line each."""
