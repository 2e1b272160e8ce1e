"""Lowering of ``transform``: map gradient sets to a gradient set."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.ir.cell import optimizer_cell
from compiler.ir.instructions import Gradient, Transform
from compiler.ir.step_graph import Derivative, Node, Read, Use
from compiler.ir.value import FunctionRef, Ref, Setting
from compiler.ir.weight_terms import Penalty
from compiler.lower.context import Lowering
from compiler.timing.curves import find_scheduled
from graphspec.declare.ops import TransformOp

ON_WEIGHTS = frozenset({"clip_agc"})
"""Built-in transforms that read the weights as well."""


def lower_transform(name: str, op: TransformOp, context: Lowering) -> tuple[Node, ...]:
    """Return the one node of a transform; its set spans the models of its first input."""
    node = transform_node(
        name,
        op=name,
        function=context.function(op.transform),
        inputs=op.inputs,
        models=context.sets.get(op.inputs[0], ()),
        options=context.settings(op.args, name),
        context=context,
        gaps=not context.gaps.isdisjoint(op.inputs),
    )
    return (node,)


def transform_node(
    node: str,
    *,
    op: str,
    function: FunctionRef | str,
    inputs: tuple[str, ...],
    models: tuple[str, ...],
    context: Lowering,
    options: Mapping[str, Setting] | None = None,
    penalties: tuple[Penalty, ...] = (),
    gaps: bool = False,
) -> Node:
    """Return a node that maps the gradient sets ``inputs``, maybe with ``gaps``, to the set named after the node.

    A ``function`` that is a name is a built-in one. It reads the optimizers whose updates some of its numbers count.
    """
    function = FunctionRef(name=function, builtin=True) if isinstance(function, str) else function
    options = options or {}
    instruction = Transform(
        op=op,
        place=context.place(op),
        function=function,
        inputs=inputs,
        output=node,
        models=models,
        options=options,
        weights=function.builtin and function.name in ON_WEIGHTS,
        draws=function.builtin and _draws(function.name, inputs, options),
        penalties=penalties,
        gaps=gaps,
    )
    read = (*(context.cells(models) if instruction.weights else ()), *_find_counted(instruction))
    return Node(
        id=node,
        op=op,
        instruction=instruction,
        label=f"transform {node}",
        uses=tuple(Use(value=value) for value in inputs),
        defines=(node,),
        reads=tuple(Read(cell=cell, constant=True) for cell in read),
        place=instruction.place,
    )


def _find_counted(instruction: Transform) -> tuple[str, ...]:
    """Return the optimizers whose updates the numbers of an instruction count."""
    counted = (number.optimizer for number in find_scheduled(instruction) if number.optimizer is not None)
    return tuple(dict.fromkeys(map(optimizer_cell, counted)))


def _draws(name: str, inputs: tuple[str, ...], options: Mapping[str, Setting]) -> bool:
    """Return whether a built-in transform draws: noise, or an order where there is more than one."""
    return name == "noise" or (name == "pcgrad" and len(inputs) > 2 and options.get("order") != "listed")


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
