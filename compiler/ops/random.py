"""Lowering of ``random``: draw a keyed random tensor."""

from __future__ import annotations

from compiler.instructions import Random
from compiler.ir import Node, Use
from compiler.ops.context import Lowering
from graphspec.ops import RandomOp


def lower_random(name: str, op: RandomOp, context: Lowering) -> tuple[Node, ...]:
    """Return the one node of a draw; ``like`` is used for its shape only."""
    instruction = Random(
        op=name,
        place=context.place(name),
        distribution=op.random,
        output=name,
        shape=op.shape,
        like=op.like,
        options=context.settings(op.args, name),
    )
    node = Node(
        id=name,
        op=name,
        instruction=instruction,
        label=f"random {name}",
        uses=() if op.like is None else (Use(value=op.like, differentiable=False),),
        defines=(name,),
        differentiable=False,
        place=instruction.place,
    )
    return (node,)
