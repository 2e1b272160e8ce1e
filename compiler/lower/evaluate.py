"""Lowering of the pure ops: ``call``, ``loss`` and ``metric``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec.structs import replace

from compiler.batch.making import evaluate
from compiler.facts.models import ModelFacts
from compiler.ir.cell import buffers_of
from compiler.ir.instructions import CONSTANT_CALLS, Evaluate, Forward, Random, Schedule, Transform
from compiler.ir.value import Read, Ref, Setting, Use, Write
from compiler.lower.context import LoweringContext, lower_inputs, make_optional, uses_of
from compiler.lower.transform import transform_node
from compiler.timing.resolve import find_reset
from graphspec.analysis.derived import find_derived
from graphspec.declare.functions import FunctionName
from graphspec.declare.inputs import Inputs
from graphspec.declare.ops import CallOp, ForwardOp, LossOp, MetricOp, RandomOp, ScheduleOp


def lower_call(name: str, op: CallOp, context: LoweringContext) -> tuple[Evaluate | Transform, ...]:
    """Return the one node of a call; on gradient sets it is a transform, whose factors are the call's numbers."""
    function = op.call.name(context.backend)
    if context.value(name).models:
        operands = tuple(enumerate(op.inputs.positional))
        inputs = tuple(operand for _, operand in operands if isinstance(operand, str))
        factors = tuple(
            context.number(operand, name, "inputs", place)
            for place, operand in operands
            if not isinstance(operand, str)
        )
        node = transform_node(
            name,
            op=name,
            function=f"{function}_sets",
            inputs=inputs,
            models=context.value(name).models,
            options={"factors": factors} if factors else {},
            context=context,
            may_miss=any(context.value(each).may_miss for each in inputs),
        )
        return (node,)
    differentiable = function not in CONSTANT_CALLS
    node = _evaluate(
        name,
        "call",
        op.call,
        op.inputs,
        context.settings(op.args, name),
        op.defines(name),
        context,
        differentiable,
        op.expr,
    )
    if function == "split_rows" and not context.value(node.uses[0].value).has_rows:
        # every iteration reads all of what has no rows; the node of the op itself gives the last
        whole = replace(node, function=replace(node.function, name="either"), options={})
        ids = (*node.outputs[:-1], name)
        return tuple(replace(whole, id=each, outputs=(made,)) for each, made in zip(ids, node.outputs, strict=True))
    if function == "add":  # a sum omits lazy terms in the steps in which they are absent
        return (make_optional(node, {use.value for use in node.uses if context.value(use.value).optional}),)
    if function in ("stack", "either"):  # an output omits the parts that do not run
        mine = op.within
        parts = {use.value: context.value(use.value).within for use in node.uses}
        apart = {name for name, each in parts.items() if any(part.is_gated and part not in mine for part in each)}
        return (make_optional(node, apart),)
    return (node,)


def lower_loss(name: str, op: LossOp, context: LoweringContext) -> tuple[Evaluate, ...]:
    """Return the one node of a loss; of one whose sum and count are kept apart a second, which makes a mean of them."""
    options = context.settings(op.args, name)
    node = _evaluate(name, "loss", op.loss, op.inputs, options, op.defines(name), context, True, op.expr)
    weight = None if op.weight is None else context.number(op.weight, name, "weight")
    whole = replace(
        node,
        weight=weight,
        reduction=op.reduction,
        times=op.times,
        gathered=name in context.gathered,
        open=name in context.open,
    )
    if name not in context.counted:
        return (whole,)
    outputs = sum_of(name), count_of(name)
    counted = replace(whole, outputs=outputs, counted=context.counted[name], gathered=False)
    mean = evaluate(f"{name}.mean", "quotient", outputs, (name,), op=name, place=context.place(name))
    uses = (mean.uses[0], replace(mean.uses[1], differentiable=False))
    return counted, replace(mean, label=f"mean of {name}", uses=uses, return_if_available=True)


def sum_of(loss: str) -> str:
    """Return the name of the sum of a loss that counts by itself."""
    return f"{loss}.sum"


def count_of(loss: str) -> str:
    """Return the name of its count."""
    return f"{loss}.count"


def lower_metric(name: str, op: MetricOp, context: LoweringContext) -> tuple[Evaluate]:
    """Return the one node of a metric, whose value is no function of the weights for any gradient."""
    options = context.settings(op.args, name)
    node = _evaluate(name, "metric", op.metric, op.inputs, options, op.defines(name), context, False)
    return (replace(node, reset=find_reset(op, context.mode, context.pace)),)


def _evaluate(
    name: str,
    family: Literal["call", "loss", "metric"],
    function: FunctionName,
    inputs: Inputs,
    options: Mapping[str, Setting],
    outputs: tuple[str, ...],
    context: LoweringContext,
    differentiable: bool,
    expr: str | None = None,
) -> Evaluate:
    """Return the node of a pure function."""
    arguments = lower_inputs(name, inputs, context)
    return Evaluate(
        id=name,
        op=name,
        label=f"evaluate {expr or name}",
        place=context.place(name),
        uses=uses_of(arguments, differentiable=differentiable),
        differentiable=differentiable,
        family=family,
        function=context.function(function),
        arguments=arguments,
        options=options,
        outputs=outputs,
        expr=expr or "",
    )


def lower_random(name: str, op: RandomOp, context: LoweringContext) -> tuple[Random]:
    """Return the one node of a draw; ``like`` is used for its shape only."""
    draw = Random(
        id=name,
        op=name,
        label=f"random {name}",
        place=context.place(name),
        uses=() if op.like is None else (Use(value=op.like, differentiable=False),),
        differentiable=False,
        distribution=op.random,
        output=name,
        shape=op.shape,
        like=op.like,
        options=context.settings(op.args, name),
    )
    return (draw,)


def lower_schedule(name: str, op: ScheduleOp, context: LoweringContext) -> tuple[Schedule]:
    """Return the one node of a schedule, which reads its clock alone."""
    number = Schedule(
        id=name,
        op=name,
        label=f"{op.kind} {name}",
        place=context.place(name),
        differentiable=False,
        output=name,
        number=context.scheduled[name,],
    )
    return (number,)


def lower_forward(name: str, op: ForwardOp, context: LoweringContext) -> tuple[Forward]:
    """Return the one node of a forward: it reads weights and buffers, and in train mode writes the buffers.

    One of a derived model runs with weights that are a value, and with the buffers of the model.
    """
    called = find_derived(context.spec).get(op.forward)
    weights = None if called is None else Ref(name=op.forward)
    owner = context.models[called or op.forward]
    train = _is_training(name, op, owner, context)
    model = context.models[context.averages.get(owner.name, owner.name)]
    again = model.recomputes or op.checkpoint
    arguments = lower_inputs(name, op.inputs, context)
    taps = tuple((output.name, output.tap) for output in op.outputs or () if output.tap is not None)
    snapshot: Literal["none", "buffers", "all"] = "none"
    if op.snapshot and not again and (weights is None or model.buffers):  # weights that are a value need no clones
        snapshot = "all" if weights is None else "buffers"
    # the model itself continues with a tap: it is no copy in another type, and nothing is recomputed
    is_continued = model.compute == "float32" and not model.recomputes
    call = Forward(
        id=name,
        op=name,
        label=f"forward {name}",
        place=context.place(name),
        uses=(*(() if weights is None else (Use(value=weights.name),)), *uses_of(arguments)),
        inner=tuple(value for value, _ in taps) if is_continued else (),
        reads=_reads(model, own=weights is None, train=train, kept=again or not op.snapshot, again=again),
        writes=(Write(cell=buffers_of(model.name), statistics=True),) if train and model.buffers else (),
        differentiable=not op.stop,
        model=model.name,
        weights=weights,
        arguments=arguments,
        outputs=tuple(output.name for output in op.outputs if output.tap is None) if op.outputs else (name,),
        named=op.outputs is not None,
        taps=taps,
        method=op.method,
        train=train,
        snapshot=snapshot,
        checkpoint=op.checkpoint,
        draws=model.rng and (train or context.spec.models[model.root].class_ is not None),
        compute=model.compute,
    )
    return (call,)


def _is_training(name: str, op: ForwardOp, model: ModelFacts, context: LoweringContext) -> bool:
    """Return whether the model runs in train mode: as written, else where some update owns it.

    Other modes than train always evaluate, except for an op that says ``train: true`` and never runs in train mode.
    """
    if "train" not in context.reaches[name].modes:
        return op.train is True
    return context.mode == "train" and (model.updated if op.train is None else op.train)


def _reads(model: ModelFacts, *, own: bool, train: bool, kept: bool, again: bool) -> tuple[Read, ...]:
    """Return the cells a call reads; autograd keeps them unless the call runs on clones.

    A recomputed call reads the model itself again, not clones. One with other weights than its ``own`` reads none.
    """
    parameters = tuple(Read(cell=cell, saved=kept, again=again) for cell in (model.cells if own else ()))
    if not model.buffers:
        return parameters
    return (*parameters, Read(cell=buffers_of(model.name), saved=kept, again=again, streaming=train))
