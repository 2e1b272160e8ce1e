"""Lowering of ``gradient``: gradients as values."""

from __future__ import annotations

from msgspec.structs import replace

from compiler.ir.instructions import Instruction, Transform
from compiler.lower.context import LoweringContext
from compiler.lower.terms import find_seeds, is_counted, lower_counted, lower_parts
from compiler.lower.transform import gradient_node, transform_node
from compiler.passes.presence import find_open
from graphspec.analysis.derived import find_derived
from graphspec.declare.ops import GradientOp


def lower_gradient(name: str, op: GradientOp, context: LoweringContext) -> tuple[Instruction, ...]:
    """Return the one node of a gradient: one set over its models, and one value per differentiated value.

    In micro-batches the set of a loss with counts of its own is combined from the sets of its shares.
    """
    derived = find_derived(context.spec)
    targets, values = op.split({*context.models, *derived})
    models = tuple(derived.get(target, target) for target in targets)
    names = op.defines(name)
    if context.split and not values and is_counted(parts := lower_parts(op.gradient, context)):
        *nodes, last = lower_counted(name, parts, models, names[0], op.unconnected, context, find_seeds(op))
        assert isinstance(last, Transform)
        if op.unconnected == "error" and find_open((last,)):
            open_set = replace(last, output=f"{names[0]}.open")
            nodes.append(open_set)
            last = transform_node(
                name,
                op=name,
                function="require",
                inputs=open_set.defines,
                models=models,
                context=context,
                may_miss=True,
            )
        return *nodes, replace(last, id=name, differentiable=not op.stop, output=names[0])
    gradient = gradient_node(
        name,
        op=name,
        label=f"gradient {name}",
        loss=op.gradient,
        models=models,
        context=context,
        weights=next((target for target in targets if target in derived), None),
        values=values,
        output=names[0] if models else None,
        value_outputs=names[1:] if models else names,
        seeds=find_seeds(op),
        unconnected=op.unconnected,
        stop=op.stop,
    )
    return (gradient,)
