"""Lowering of ``update``: gradient, clip, and the optimizer's write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from compiler.cells import optimizer_cell, window_of
from compiler.instructions import Apply, ApplyPart, Gradient
from compiler.ir import Derivative, Node, Read, Use, Write
from compiler.operands import FunctionRef, Scheduled, Setting
from compiler.ops.accumulate import Windows
from compiler.ops.context import Lowering
from compiler.ops.projecting import find_projections
from compiler.ops.regularization import regularize
from compiler.ops.transform import transform_node
from compiler.ops.verdict import bind, find_overflow, judge, verdict_of
from graphspec.ops import UpdateOp
from graphspec.ops.update import ClipSpec


def lower_update(name: str, op: UpdateOp, context: Lowering) -> tuple[Node, ...]:
    """Return the chain of an update: gradient (unless given), window, penalties, join and clip where needed, apply."""
    chain = [_lower_loss(name, op, op.loss, context)] if op.loss is not None else []
    sets = {name: op.update} if op.loss is not None else _given_sets(op, context)
    chain += judge(name, op, context)
    filled: list[str] = []
    if op.window > 1:
        windows = Windows(name, op, context)
        sets = {windows.gather(value): models for value, models in sets.items()}
        chain = [*(replace(each, gate=window_of(name)) for each in chain), *windows.nodes]
        filled = windows.filled
    penalties, sets = regularize(name, op, sets, context)
    chain += penalties
    whole = op.optimizer is not None or op.clip is not None
    if len(sets) > 1 and whole:
        chain.append(_join(name, sets, context))
        sets = {f"{name}.joined": tuple(model for models in sets.values() for model in models)}
    if op.clip is not None:
        (value, models), *_ = sets.items()
        chain.append(_clip(name, op.clip, value, models, context))
        sets = {f"{name}.clipped": models}
    return (*chain, _bind(_lower_apply(name, op, sets, context), name, op, filled, context))


def _bind(write: Node, name: str, op: UpdateOp, filled: list[str], context: Lowering) -> Node:
    """Return the write of an update under its verdict, if there is one: that of its window where it has one.

    All windows of an update are filled together.
    """
    if filled:
        return bind(write, filled[0], "own")
    if name in context.judged and op.window == 1:
        return bind(write, verdict_of(name), find_overflow(op, context.spec))
    return write


def _lower_loss(name: str, op: UpdateOp, loss: str, context: Lowering) -> Node:
    """Return the gradient of an update's loss with respect to all its models."""
    instruction = Gradient(
        op=name, place=context.place(name), loss=loss, models=op.update, output=name, scaled=context.scaled
    )
    return Node(
        id=f"{name}.gradient",
        op=name,
        instruction=instruction,
        label=f"gradient {name}",
        uses=(Use(value=loss),),
        defines=(name,),
        derivative=Derivative(loss=loss, models=op.update, cells=frozenset(context.cells(op.update))),
        place=instruction.place,
    )


def _given_sets(op: UpdateOp, context: Lowering) -> Mapping[str, tuple[str, ...]]:
    """Return the given gradient sets with the models each spans."""
    return {value: context.sets.get(value, ()) for value in op.gradients or ()}


def _join(name: str, sets: Mapping[str, tuple[str, ...]], context: Lowering) -> Node:
    """Return the concatenation of several sets, in their order, for what acts on all of them at once."""
    return transform_node(
        f"{name}.joined",
        op=name,
        function=FunctionRef(name="join", builtin=True),
        inputs=tuple(sets),
        models=tuple(model for models in sets.values() for model in models),
        options={},
        context=context,
    )


def _clip(name: str, clip: ClipSpec, gradients: str, models: tuple[str, ...], context: Lowering) -> Node:
    """Return the clip of an update's whole gradient set."""
    limit = context.number(clip.limit, name, "clip", clip.kind)
    node = transform_node(
        f"{name}.clipped",
        op=name,
        function=FunctionRef(name=f"clip_{clip.kind}", builtin=True),
        inputs=(gradients,),
        models=models,
        options=_clip_options(clip, limit),
        context=context,
    )
    return _counting(node, limit.optimizer) if isinstance(limit, Scheduled) and limit.optimizer is not None else node


def _counting(node: Node, optimizer: str) -> Node:
    """Return a node that reads how many updates an optimizer has applied."""
    return replace(node, reads=(*node.reads, Read(cell=optimizer_cell(optimizer), constant=True)))


def _clip_options(clip: ClipSpec, limit: float | Scheduled) -> Mapping[str, Setting]:
    """Return the options of the clip's transform."""
    if clip.agc is not None:
        return {"clipping": limit, "eps": clip.epsilon}
    if clip.value is not None:
        return {"value": limit}
    apart: Mapping[str, Setting] = {"per": "parameter"} if clip.per == "parameter" else {}
    return {"norm": limit, "eps": clip.epsilon, **apart}


def _lower_apply(name: str, op: UpdateOp, sets: Mapping[str, tuple[str, ...]], context: Lowering) -> Node:
    """Return the write of an update: it steps the models' newest parameters, whoever wrote them before."""
    parts = tuple(
        replace(part, optimizer=context.phases.get(part.optimizer, part.optimizer)) for part in _parts(name, op, sets)
    )
    cells = context.cells(op.update) + tuple(optimizer_cell(part.optimizer) for part in parts)
    projections = tuple(find_projections(op, context))
    instruction = Apply(op=name, place=context.place(name), parts=parts, projections=projections)
    return Node(
        id=name,
        op=name,
        instruction=instruction,
        label=f"apply {name}",
        uses=tuple(Use(value=value) for value in sets),
        reads=tuple(Read(cell=cell, streaming=True) for cell in cells),
        writes=tuple(Write(cell=cell) for cell in cells),
        eager=True,
        defer=op.defer,
        place=instruction.place,
    )


def _parts(name: str, op: UpdateOp, sets: Mapping[str, tuple[str, ...]]) -> tuple[ApplyPart, ...]:
    """Return one part for the update's own optimizer, or one part per model for theirs."""
    if op.optimizer is not None:
        value, covers = next(iter(sets.items()))
        return (ApplyPart(optimizer=name, models=op.update, gradients=value, covers=covers),)
    holders = ((model, value, covers) for model in op.update for value, covers in sets.items() if model in covers)
    return tuple(
        ApplyPart(optimizer=model, models=(model,), gradients=value, covers=covers) for model, value, covers in holders
    )
