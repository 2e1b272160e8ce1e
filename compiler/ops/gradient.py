"""Lowering of ``gradient``: gradients as values."""

from __future__ import annotations

from dataclasses import replace

from compiler.gaps import find_open
from compiler.instructions import Gradient
from compiler.ir import Derivative, Node, Use
from compiler.operands import FunctionRef
from compiler.ops.context import Lowering, lower_operand
from compiler.ops.shares import is_counted, lower_counted, lower_shares, rename
from compiler.ops.transform import transform_node
from graphspec.ops import GradientOp


def lower_gradient(name: str, op: GradientOp, context: Lowering) -> tuple[Node, ...]:
    """Return the one node of a gradient: one set over its models, and one value per differentiated value."""
    models = tuple(target for target in op.wrt if target in context.models)
    values = tuple(target for target in op.wrt if target not in context.models)
    names = op.defines(name)
    if context.parted and is_counted(lower_shares(op.gradient, context)):
        return _lower_counted(name, op, models, context)
    seeds = tuple(lower_operand(operand) for operand in op.grad_outputs or ())
    instruction = Gradient(
        op=name,
        place=context.place(name),
        loss=op.gradient,
        models=models,
        values=values,
        output=names[0] if models else None,
        value_outputs=names[1:] if models else names,
        grad_outputs=seeds,
        unconnected=op.unconnected,
        scaled=context.scaled,
    )
    node = Node(
        id=name,
        op=name,
        instruction=instruction,
        label=f"gradient {name}",
        uses=(
            Use(value=op.gradient),
            *(Use(value=value) for value in values),
            *(Use(value=seed) for seed in op.grad_outputs or ()),
        ),
        defines=names,
        derivative=Derivative(loss=op.gradient, models=models, cells=frozenset(context.cells(models)), values=values),
        differentiable=not op.stop,
        place=instruction.place,
    )
    return (node,)


def _lower_counted(name: str, op: GradientOp, models: tuple[str, ...], context: Lowering) -> tuple[Node, ...]:
    """Return the set of a gradient in micro-batches, of a loss with counts of its own."""
    output = op.defines(name)[0]
    *nodes, last = lower_counted(name, op.gradient, models, output, op.unconnected, context)
    if op.unconnected == "error" and find_open((last,)):
        open_set = rename(last, f"{output}.open")
        nodes.append(open_set)
        last = transform_node(
            name,
            op=name,
            function=FunctionRef(name="require", builtin=True),
            inputs=open_set.defines,
            models=models,
            options={},
            context=context,
            gaps=True,
        )
    return *nodes, rename(replace(last, id=name, differentiable=not op.stop), output)
