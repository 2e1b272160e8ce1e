"""Lowering of ``transform``: map gradient sets to a gradient set."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir import Node, Use
from compiler.ops.context import Lowering, freeze_options
from compiler.program import FunctionRef, Plain, Transform
from graphspec.ops import TransformOp


def lower_transform(name: str, op: TransformOp, context: Lowering) -> tuple[Node, ...]:
    """Return the one node of a transform; its set spans the models of its first input."""
    node = transform_node(
        name,
        op=name,
        function=context.function(op.transform),
        inputs=op.inputs,
        models=context.sets.get(op.inputs[0], ()),
        options=freeze_options(op.args),
        place=context.place(name),
    )
    return (node,)


def transform_node(
    node: str,
    *,
    op: str,
    function: FunctionRef,
    inputs: tuple[str, ...],
    models: tuple[str, ...],
    options: Mapping[str, Plain],
    place: str,
) -> Node:
    """Return a node that maps the gradient sets ``inputs`` to the set named after the node."""
    instruction = Transform(
        op=op, place=place, function=function, inputs=inputs, output=node, models=models, options=options
    )
    return Node(
        id=node,
        op=op,
        instruction=instruction,
        label=f"transform {node}",
        uses=tuple(Use(value=value) for value in inputs),
        defines=(node,),
        place=place,
    )
