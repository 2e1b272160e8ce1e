"""Lowering of ``update``: gradient, clip, and the optimizer's write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from compiler.cells import optimizer_cell, window_of
from compiler.gaps import find_open
from compiler.instructions import Apply, ApplyPart, Gradient
from compiler.ir import Derivative, Node, Read, Use, Write
from compiler.operands import FunctionRef, Scheduled, Setting
from compiler.ops.accumulate import Windows
from compiler.ops.context import Lowering
from compiler.ops.projecting import find_projections
from compiler.ops.regularization import regularize
from compiler.ops.transform import transform_node
from graphspec.ops import UpdateOp
from graphspec.ops.update import ClipSpec


def lower_update(name: str, op: UpdateOp, context: Lowering) -> tuple[Node, ...]:
    """Return the chain of an update: gradient (unless given), window, gaps, penalties, join and clip, apply."""
    chain = [_lower_loss(name, op, op.loss, context)] if op.loss is not None else []
    sets = {name: op.update} if op.loss is not None else _given_sets(op, context)
    if op.window > 1:
        windows = Windows(name, op, context)
        sets = {windows.gather(value): models for value, models in sets.items()}
        chain = [*(replace(each, gate=window_of(name)) for each in chain), *windows.nodes]
    closed, sets = _close(name, op, sets, context, find_open(chain) | context.gaps)
    chain += closed
    penalties, sets = regularize(name, op, sets, context, find_open(chain) | context.gaps)
    chain += penalties
    whole = op.optimizer is not None or op.clip is not None
    if len(sets) > 1 and whole:
        chain.append(_join(name, sets, context, find_open(chain) | context.gaps))
        sets = {f"{name}.joined": tuple(model for models in sets.values() for model in models)}
    gaps = find_open(chain) | context.gaps
    if op.clip is not None:
        (value, models), *_ = sets.items()
        chain.append(_clip(name, op.clip, value, models, context, value in gaps))
        sets, gaps = {f"{name}.clipped": models}, find_open(chain)
    return (*chain, _lower_apply(name, op, sets, context, gaps))


def _close(
    name: str, op: UpdateOp, sets: Mapping[str, tuple[str, ...]], context: Lowering, gaps: frozenset[str]
) -> tuple[tuple[Node, ...], Mapping[str, tuple[str, ...]]]:
    """Return what refuses the gaps of the sets of an update, or fills them with zeros, and the sets that it uses then."""
    if op.missing == "skip" or gaps.isdisjoint(sets):
        return (), sets
    nodes: list[Node] = []
    found: dict[str, tuple[str, ...]] = {}
    function, word = ("fill", "filled") if op.missing == "zero" else ("require", "whole")
    for value, models in sets.items():
        target = (f"{name}.{word}" if len(sets) == 1 else f"{name}.{word}.{value}") if value in gaps else value
        found[target] = models
        if value in gaps:
            nodes.append(_transform(target, name, function, {value: models}, context, gaps=True))
    return tuple(nodes), found


def _transform(
    node: str, op: str, function: str, sets: Mapping[str, tuple[str, ...]], context: Lowering, *, gaps: bool
) -> Node:
    """Return a built-in transform without options of sets in a row."""
    return transform_node(
        node,
        op=op,
        function=FunctionRef(name=function, builtin=True),
        inputs=tuple(sets),
        models=tuple(model for models in sets.values() for model in models),
        options={},
        context=context,
        gaps=gaps,
    )


def _lower_loss(name: str, op: UpdateOp, loss: str, context: Lowering) -> Node:
    """Return the gradient of an update's loss with respect to all its models."""
    instruction = Gradient(
        op=name, place=context.place(name), loss=loss, models=op.update, output=name, unconnected=op.missing
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


def _join(name: str, sets: Mapping[str, tuple[str, ...]], context: Lowering, gaps: frozenset[str]) -> Node:
    """Return the concatenation of several sets, in their order, for what acts on all of them at once."""
    return _transform(f"{name}.joined", name, "join", sets, context, gaps=not gaps.isdisjoint(sets))


def _clip(
    name: str, clip: ClipSpec, gradients: str, models: tuple[str, ...], context: Lowering, gaps: bool
) -> Node:
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
        gaps=gaps,
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


def _lower_apply(
    name: str, op: UpdateOp, sets: Mapping[str, tuple[str, ...]], context: Lowering, gaps: frozenset[str]
) -> Node:
    """Return the write of an update: it steps the models' newest parameters, whoever wrote them before."""
    parts = tuple(
        replace(part, optimizer=context.phases.get(part.optimizer, part.optimizer), gaps=part.gradients in gaps)
        for part in _parts(name, op, sets)
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
