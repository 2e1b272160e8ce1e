"""Lowering of ``update``: gradient, clip, and the optimizer's write."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.cells import optimizer_cell
from compiler.ir import Derivative, Node, Read, Use, Write
from compiler.ops.context import Lowering
from compiler.ops.transform import transform_node
from compiler.program import Apply, ApplyPart, FunctionRef, Gradient, Plain
from graphspec.ops import UpdateOp
from graphspec.ops.update import ClipSpec


def lower_update(name: str, op: UpdateOp, context: Lowering) -> tuple[Node, ...]:
    """Return the chain of an update: gradient (unless given), join and clip where needed, apply."""
    chain = [_lower_loss(name, op, op.loss, context)] if op.loss is not None else []
    sets = {name: op.update} if op.loss is not None else _given_sets(op, context)
    whole = op.optimizer is not None or op.clip is not None
    if len(sets) > 1 and whole:
        chain.append(_join(name, sets, context))
        sets = {f"{name}.joined": tuple(model for models in sets.values() for model in models)}
    if op.clip is not None:
        (value, models), *_ = sets.items()
        chain.append(_clip(name, op.clip, value, models, context))
        sets = {f"{name}.clipped": models}
    return (*chain, _lower_apply(name, op, sets, context))


def _lower_loss(name: str, op: UpdateOp, loss: str, context: Lowering) -> Node:
    """Return the gradient of an update's loss with respect to all its models."""
    instruction = Gradient(op=name, place=context.place(name), loss=loss, models=op.update, output=name)
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
        place=context.place(name),
    )


def _clip(name: str, clip: ClipSpec, gradients: str, models: tuple[str, ...], context: Lowering) -> Node:
    """Return the clip of an update's whole gradient set (global over its models)."""
    return transform_node(
        f"{name}.clipped",
        op=name,
        function=FunctionRef(name="clip_value" if clip.norm is None else "clip_norm", builtin=True),
        inputs=(gradients,),
        models=models,
        options=_clip_options(clip),
        place=context.place(name),
    )


def _clip_options(clip: ClipSpec) -> Mapping[str, Plain]:
    """Return the options of the clip's transform."""
    return {"value": clip.value} if clip.norm is None else {"norm": clip.norm, "eps": clip.eps}


def _lower_apply(name: str, op: UpdateOp, sets: Mapping[str, tuple[str, ...]], context: Lowering) -> Node:
    """Return the write of an update: it steps the models' newest parameters, whoever wrote them before."""
    parts = _parts(name, op, sets)
    cells = context.cells(op.update) + tuple(optimizer_cell(part.optimizer) for part in parts)
    instruction = Apply(op=name, place=context.place(name), parts=parts)
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
