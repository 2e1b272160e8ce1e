"""The node of a gradient: what it uses and gives, and what it runs back through."""

from __future__ import annotations

from compiler.instructions import Gradient
from compiler.ir import Derivative, Node, Use
from compiler.operands import Ref
from compiler.ops.context import Lowering


def gradient_node(node: str, instruction: Gradient, context: Lowering, *, label: str, stop: bool = False) -> Node:
    """Return the node of a gradient; ``stop``: no other gradient runs through it."""
    models, values = instruction.models, instruction.values
    seeds = (each.name for each in instruction.grad_outputs if isinstance(each, Ref))
    output = () if instruction.output is None else (instruction.output,)
    return Node(
        id=node,
        op=instruction.op,
        instruction=instruction,
        label=label,
        uses=tuple(Use(value=value) for value in (instruction.loss, *values, *seeds)),
        defines=(*output, *instruction.value_outputs),
        derivative=Derivative(
            loss=instruction.loss, models=models, cells=frozenset(context.cells(models)), values=values
        ),
        differentiable=not stop,
        place=instruction.place,
    )
