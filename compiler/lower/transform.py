"""Lowering of ``transform``: map gradient sets to a gradient set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec.structs import replace

from compiler.ir.cell import optimizer_cell
from compiler.ir.instructions import Gradient, Transform
from compiler.ir.value import FunctionRef, Operand, Read, Ref, Setting, Use
from compiler.ir.weight_terms import Penalty
from compiler.lower.context import LoweringContext
from compiler.timing.curves import find_scheduled
from graphspec.declare.ops import TransformOp

Missing: TypeAlias = Literal["error", "skip", "zero"]
"""What a parameter without a gradient means: a mistake, nothing to step, zeros."""
ON_WEIGHTS = frozenset({"clip_agc"})
"""Built-in transforms that read the weights as well."""


def lower_transform(name: str, op: TransformOp, context: LoweringContext) -> tuple[Transform, ...]:
    """Return the one node of a transform; its set spans the models of its first input."""
    node = transform_node(
        name,
        op=name,
        function=context.function(op.transform),
        inputs=op.inputs,
        models=context.value(op.inputs[0]).models,
        options=context.settings(op.args, name),
        context=context,
        may_miss=any(context.value(each).may_miss for each in op.inputs),
    )
    return (node,)


def transform_node(
    node: str,
    *,
    op: str,
    function: FunctionRef | str,
    inputs: tuple[str, ...],
    models: tuple[str, ...],
    context: LoweringContext,
    options: Mapping[str, Setting] | None = None,
    penalties: tuple[Penalty, ...] = (),
    may_miss: bool = False,
) -> Transform:
    """Return a node that maps the gradient sets ``inputs`` to the set named after the node; ``may_miss`` gradients.

    A ``function`` that is a name is a built-in one. It reads the optimizers whose updates some of its numbers count.
    """
    function = FunctionRef(name=function, builtin=True) if isinstance(function, str) else function
    options = options or {}
    is_shuffled = function.name == "pcgrad" and len(inputs) > 2 and options.get("order") != "listed"
    made = Transform(
        id=node,
        op=op,
        label=f"transform {node}",
        place=context.place(op),
        uses=tuple(Use(value=value) for value in inputs),
        function=function,
        inputs=inputs,
        output=node,
        models=models,
        options=options,
        weights=function.builtin and function.name in ON_WEIGHTS,
        draws=function.builtin and (function.name == "noise" or is_shuffled),
        penalties=penalties,
        may_miss=may_miss,
    )
    counted = (number.optimizer for number in find_scheduled(made) if number.optimizer is not None)
    cells = (*(context.cells(models) if made.weights else ()), *dict.fromkeys(map(optimizer_cell, counted)))
    return replace(made, reads=tuple(Read(cell=cell, constant=True) for cell in cells))


def gradient_node(
    name: str,
    *,
    op: str,
    label: str,
    loss: str,
    models: tuple[str, ...],
    context: LoweringContext,
    output: str | None,
    weights: str | None = None,
    values: tuple[str, ...] = (),
    value_outputs: tuple[str, ...] = (),
    seeds: tuple[Operand, ...] = (),
    unconnected: Missing = "error",
    term: str = "",
    stop: bool = False,
) -> Gradient:
    """Return a gradient of a loss, times ``seeds``; ``stop``: no other gradient runs through it.

    ``weights``: the derived model for whose weights it is taken, in place of those of the model.
    """
    derived = () if weights is None else (weights,)
    factors = (each.name for each in seeds if isinstance(each, Ref))
    return Gradient(
        id=name,
        op=op,
        label=label,
        place=context.place(op),
        uses=tuple(Use(value=value) for value in (loss, *derived, *values, *factors)),
        differentiable=not stop,
        loss=loss,
        models=models,
        cells=frozenset(context.cells(models) if weights is None else ()),
        weights=weights,
        values=values,
        output=output,
        value_outputs=value_outputs,
        grad_outputs=seeds,
        unconnected=unconnected,
        scaled=context.scaled,
        term=term,
    )
