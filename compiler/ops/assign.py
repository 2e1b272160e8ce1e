"""Lowering of ``assign``: write a state."""

from __future__ import annotations

from compiler.cells import state_of
from compiler.instructions import Store
from compiler.ir import Node, Use, Write
from compiler.operands import Ref
from compiler.ops.context import Lowering
from graphspec.ops import AssignOp


def lower_assign(name: str, op: AssignOp, context: Lowering) -> tuple[Node, ...]:
    """Return the one node of an assignment; it reads nothing of the state, which it replaces."""
    instruction = Store(
        op=name, place=context.place(name), state=op.assign, value=context.operand(op.value, name, "value")
    )
    node = Node(
        id=name,
        op=name,
        instruction=instruction,
        label=f"assign {name}",
        uses=(Use(value=instruction.value.name, differentiable=False),) if isinstance(instruction.value, Ref) else (),
        writes=(Write(cell=state_of(op.assign)),),
        eager=True,
        place=instruction.place,
    )
    return (node,)
