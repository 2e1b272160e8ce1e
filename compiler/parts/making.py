"""Making of the nodes that micro-batches need beside the copies: splits, shares, sums, and what is joined again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.instructions import Evaluate, Gradient, Transform
from compiler.ir import Node, Use
from compiler.operands import Argument, FunctionRef, Ref, Setting

PARTING = frozenset({"parts", "shares", "weigh", "quotient", "inverse"})
"""Functions that cut a value into micro-batches, tell their shares of the rows, and multiply with these; and those that
divide by the count of a loss."""


def evaluate(
    name: str,
    function: str,
    operands: Sequence[str],
    outputs: tuple[str, ...],
    *,
    like: Node | None = None,
    op: str = "",
    place: str = "",
    part: int = 0,
    options: Mapping[str, Setting] | None = None,
    constant: bool = False,
    prompt: bool = False,
) -> Node:
    """Return a node that calls a function of the library; ``like``: it is admitted as that node is, and is of its op.

    ``constant``: no gradient goes through it.
    """
    op, place = (op, place) if like is None else (like.op, like.place)
    instruction = Evaluate(
        op=op,
        place=place,
        part=part,
        family="part" if function in PARTING else "call",
        function=FunctionRef(name=function, builtin=True),
        arguments=tuple(Argument(operand=Ref(name=each)) for each in operands),
        options=options or {},
        outputs=outputs,
    )
    return Node(
        id=name,
        op=op,
        instruction=instruction,
        label=f"call {name}",
        uses=tuple(Use(value=value, differentiable=not constant) for value in operands),
        defines=outputs,
        differentiable=not constant,
        place=place,
        part=part,
        prompt=prompt,
        gate="" if like is None else like.gate,
    )


def add_sets(name: str, inputs: tuple[str, ...], gradient: Gradient, like: Node, part: int) -> Node:
    """Return a node that adds two of the sets that a gradient gives; what is absent in one adds nothing."""
    instruction = Transform(
        op=like.op,
        place=like.place,
        part=part,
        function=FunctionRef(name="add_sets", builtin=True),
        inputs=inputs,
        output=name,
        models=gradient.models,
        gaps=gradient.unconnected == "skip" or bool(gradient.resting),
    )
    return Node(
        id=f"{name}.sum",
        op=like.op,
        instruction=instruction,
        label=f"sum {name}",
        uses=tuple(Use(value=value) for value in inputs),
        defines=(name,),
        place=like.place,
        part=part,
        gate=like.gate,
    )
