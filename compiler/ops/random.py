"""Lowering of ``random``: draw a keyed random tensor."""

from __future__ import annotations

from compiler.ir import Node, Use
from compiler.ops.context import Lowering, freeze_options
from compiler.program import Random
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
        options=freeze_options(op.args),
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
