"""Lowering of ``adapt``: a gradient, unless one is given, and the weights that it leads to."""

from __future__ import annotations

from msgspec.structs import replace

from compiler.ir.instructions import Adapt, Instruction
from compiler.ir.value import Operand, Read, Ref, Use
from compiler.lower.context import LoweringContext
from compiler.lower.evaluate import lower_forward
from compiler.lower.transform import gradient_node
from graphspec.analysis.derived import find_derived
from graphspec.declare.ops import AdaptOp, ForwardOp


def lower_adapt(name: str, op: AdaptOp, context: LoweringContext) -> tuple[Instruction, ...]:
    """Return the nodes of a derived model: it reads the parameters of its model, unless it begins with another one.

    A rate that is a parameter is the value of a call. Of order 1 no gradient runs back through the gradients.
    """
    model = find_derived(context.spec)[name]
    base = None if op.adapt == model else Ref(name=op.adapt)
    nodes: list[Instruction] = []
    gradients = op.gradients
    if op.loss is not None:
        gradients = f"{name}.gradient"
        gradient = gradient_node(
            gradients,
            op=name,
            label=f"gradient {name}",
            loss=op.loss,
            models=(model,),
            weights=base and base.name,
            context=context,
            output=gradients,
        )
        nodes.append(gradient)
    assert gradients is not None
    rates: list[Operand] = []
    for path, rate in op.rates:
        if isinstance(rate, str):
            value = f"{name}.{rate}"
            if not any(node.id == value for node in nodes):
                (call,) = lower_forward(name, ForwardOp(forward=rate), context)
                nodes.append(replace(call, id=value, label=f"forward {value}", outputs=(value,)))
            rates.append(Ref(name=value))
        else:
            rates.append(context.operand(rate, name, *path))
    read = [each.name for each in (base, *rates) if isinstance(each, Ref)]
    adapt = Adapt(
        id=name,
        op=name,
        label=f"adapt {name}",
        place=context.place(name),
        uses=(*(Use(value=value) for value in read), Use(value=gradients, differentiable=op.order == 2)),
        reads=tuple(Read(cell=cell) for cell in context.models[model].cells) if base is None else (),
        model=model,
        base=base,
        gradients=Ref(name=gradients),
        rate=rates[0],
        groups=tuple(zip((group.match for group in op.groups), rates[1:], strict=True)),
        output=name,
    )
    return *nodes, adapt
