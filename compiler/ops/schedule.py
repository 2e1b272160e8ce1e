"""Lowering of ``schedule``: a number that changes while training, as a value."""

from __future__ import annotations

from compiler.instructions import Schedule
from compiler.ir import Node
from compiler.ops.context import Lowering
from graphspec.ops import ScheduleOp


def lower_schedule(name: str, op: ScheduleOp, context: Lowering) -> tuple[Node, ...]:
    """Return the one node of a schedule, which reads its clock alone."""
    instruction = Schedule(op=name, place=context.place(name), output=name, number=context.scheduled[name,])
    node = Node(
        id=name,
        op=name,
        instruction=instruction,
        label=f"{op.kind} {name}",
        defines=(name,),
        differentiable=False,
        place=instruction.place,
    )
    return (node,)
