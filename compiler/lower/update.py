"""Lowering of ``update``: gradient, clip, and the optimizer's write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from compiler.facts.optimizers import find_excluded, find_givers, find_held, find_kept, is_kept
from compiler.ir.cell import optimizer_cell
from compiler.ir.instructions import Apply, ApplyPart, Instruction, Transform
from compiler.ir.program import window_of
from compiler.ir.value import Read, Scheduled, Setting, Use, Write
from compiler.lower.accumulate import Windows
from compiler.lower.context import Lowering
from compiler.lower.regularization import find_projections, regularize
from compiler.lower.terms import Share, is_counted, lower_counted, lower_gradient_of, lower_parts, lower_shares
from compiler.lower.transform import transform_node
from compiler.lower.verdict import (
    bind_update,
    find_verdicts,
    judge,
    judge_final,
)
from compiler.passes.presence import find_open
from graphspec.declare.ops import UpdateOp
from graphspec.declare.ops.update import ClipSpec


def lower_update(name: str, op: UpdateOp, context: Lowering) -> tuple[Instruction, ...]:
    """Return the chain of an update: its final gradients, those of others for what it shares with them, its write."""
    chain, sets = _lower_gradients(name, op, context)
    gaps = find_open(chain) | context.gaps
    givers, verdicts = find_givers(context.spec, name), find_verdicts(chain)
    others: tuple[str, ...] = ()
    if givers:
        shared, sets, others = _share(name, sets, givers, context, gaps)
        judges = judge_final(name, op, sets, (), context, f"{name}.shared")
        chain, gaps = (*chain, shared, *judges), gaps | find_open((shared,))
        verdicts = (*verdicts, *find_verdicts(judges))
    write = _lower_apply(name, op, sets, context, gaps)
    return (*chain, bind_update(write, op, verdicts, others, context.spec))


def _lower_gradients(
    name: str, op: UpdateOp, context: Lowering
) -> tuple[tuple[Instruction, ...], Mapping[str, tuple[str, ...]]]:
    """Return the nodes of an update before its write, and the sets they give: gradient (unless given) to clip."""
    chain = _lower_loss(name, op, op.loss, context) if op.loss is not None else []
    sets = {name: op.update} if op.loss is not None else _given_sets(op, context)
    if op.window > 1:
        windows = Windows(name, op, context)
        sets = {windows.gather(value): models for value, models in sets.items()}
        taken = [*chain, *windows.taken, *judge(name, op, context, windows.shared)]
        chain = [replace(each, gate=window_of(name)) if each.op == name else each for each in taken] + windows.nodes
    closed, sets = _close(name, op, sets, context, find_open(chain) | context.gaps)
    chain += closed
    penalties, sets = regularize(name, op, sets, context, find_open(chain) | context.gaps)
    chain += penalties
    is_given = op.loss is None and not chain
    whole = op.optimizer is not None or op.clip is not None or _is_sharing(name, context)
    if (len(sets) > 1 and whole) or (is_given and op.clip is None and _is_sharing(name, context)):
        chain.append(_join(name, sets, context, find_open(chain) | context.gaps))
        sets = {f"{name}.joined": tuple(model for models in sets.values() for model in models)}
    if op.clip is not None:
        (value, models), *_ = sets.items()
        chain.append(_clip(name, op.clip, value, models, context, value in find_open(chain) | context.gaps))
        sets = {f"{name}.clipped": models}
    subject = window_of(name) if op.window > 1 else name
    return (*chain, *judge_final(name, op, sets, chain, context, subject)), sets


def _is_sharing(name: str, context: Lowering) -> bool:
    """Return whether an update gives gradients to another, or takes some: then it has one set, which is its own."""
    kept = find_kept(context.spec, name)
    return bool(find_givers(context.spec, name)) or len(kept) < len(find_held(context.spec)[name])


def _share(
    name: str,
    sets: Mapping[str, tuple[str, ...]],
    givers: tuple[str, ...],
    context: Lowering,
    gaps: frozenset[str],
) -> tuple[Instruction, Mapping[str, tuple[str, ...]], tuple[str, ...]]:
    """Return the node that adds the final gradients of other updates for what is shared, where those fire.

    With it come the set that it gives, and the verdicts over what it adds.
    """
    ((value, models),) = sets.items()
    given: dict[str, tuple[str, ...]] = {}
    open_sets, verdicts = gaps, dict[str, None]()
    for other in givers:
        op = context.spec.ops[other]
        assert isinstance(op, UpdateOp)
        nodes, found = _lower_gradients(other, op, context)
        given |= found
        open_sets |= find_open(nodes)
        verdicts |= dict.fromkeys(find_verdicts(nodes))
    has_gaps = not open_sets.isdisjoint((value, *given))
    node = _transform(f"{name}.shared", name, "share", {value: models, **given}, context, gaps=has_gaps)
    spans = (models, *given.values())
    uses = (node.uses[0], *(replace(use, optional=True) for use in node.uses[1:]))
    shared = replace(node, models=models, spans=spans, uses=uses)
    return shared, {f"{name}.shared": models}, tuple(verdicts)


def _close(
    name: str, op: UpdateOp, sets: Mapping[str, tuple[str, ...]], context: Lowering, gaps: frozenset[str]
) -> tuple[tuple[Instruction, ...], Mapping[str, tuple[str, ...]]]:
    """Return what refuses the gaps of the sets of an update, or fills them with zeros, and the sets it then uses."""
    if op.missing == "skip" or gaps.isdisjoint(sets):
        return (), sets
    nodes: list[Instruction] = []
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
) -> Transform:
    """Return a built-in transform without options of sets in a row."""
    models = tuple(model for models in sets.values() for model in models)
    inputs = tuple(sets)
    return transform_node(node, op=op, function=function, inputs=inputs, models=models, context=context, gaps=gaps)


def _lower_loss(name: str, op: UpdateOp, loss: str, context: Lowering) -> list[Instruction]:
    """Return the gradient of an update's loss with respect to all its models; its windows see to one that they count.

    In micro-batches it is divided by the counts of the loss.
    """
    if name in context.gathering and is_counted(lower_shares(loss, context)):
        return []
    if context.parted and is_counted(parts := lower_parts(loss, context)):
        return [*lower_counted(name, parts, op.update, name, op.missing, context)]
    share = Share(loss=loss)
    (node,) = lower_gradient_of(share, op=name, models=op.update, output=name, missing=op.missing, context=context)
    return [node]


def _given_sets(op: UpdateOp, context: Lowering) -> Mapping[str, tuple[str, ...]]:
    """Return the given gradient sets with the models each spans."""
    return {value: context.sets.get(value, ()) for value in op.gradients or ()}


def _join(name: str, sets: Mapping[str, tuple[str, ...]], context: Lowering, gaps: frozenset[str]) -> Instruction:
    """Return the concatenation of several sets, in their order, for a transform over all of them."""
    return _transform(f"{name}.joined", name, "join", sets, context, gaps=not gaps.isdisjoint(sets))


def _clip(
    name: str, clip: ClipSpec, gradients: str, models: tuple[str, ...], context: Lowering, gaps: bool
) -> Instruction:
    """Return the clip of an update's whole gradient set."""
    limit = context.number(clip.limit, name, "clip", clip.kind)
    return transform_node(
        f"{name}.clipped",
        op=name,
        function=f"clip_{clip.kind}",
        inputs=(gradients,),
        models=models,
        options=_clip_options(clip, limit, context.number(clip.epsilon, name, "clip", "eps")),
        context=context,
        gaps=gaps,
    )


def _clip_options(clip: ClipSpec, limit: float | Scheduled, eps: float | Scheduled) -> Mapping[str, Setting]:
    """Return the options of the clip's transform."""
    if clip.agc is not None:
        return {"clipping": limit, "eps": eps}
    if clip.value is not None:
        return {"value": limit}
    apart: Mapping[str, Setting] = {"per": "parameter"} if clip.per == "parameter" else {}
    return {"norm": limit, "eps": eps, **apart}


def _lower_apply(
    name: str, op: UpdateOp, sets: Mapping[str, tuple[str, ...]], context: Lowering, gaps: frozenset[str]
) -> Instruction:
    """Return the write of an update: it steps the newest parameters of the models, regardless of who wrote them."""
    parts = tuple(
        replace(part, optimizer=context.phases.get(part.optimizer, part.optimizer), gaps=part.gradients in gaps)
        for part in _parts(name, op, sets, context)
    )
    cells = find_kept(context.spec, name) + tuple(optimizer_cell(part.optimizer) for part in parts)
    stepped = {model for part in parts for model in part.models}
    projections = tuple(find_projections(name, op, stepped, context))
    return Apply(
        id=name,
        op=name,
        label=f"apply {name}",
        place=context.place(name),
        uses=tuple(Use(value=value) for value in sets),
        reads=tuple(Read(cell=cell, streaming=True) for cell in cells),
        writes=tuple(Write(cell=cell) for cell in cells),
        defer=op.defer,
        parts=parts,
        projections=projections,
    )


def _parts(name: str, op: UpdateOp, sets: Mapping[str, tuple[str, ...]], context: Lowering) -> tuple[ApplyPart, ...]:
    """Return one part for the update's own optimizer, or one part per model for theirs."""
    kept = tuple(model for model in op.update if is_kept(context.spec, name, model))
    if op.optimizer is not None:
        value, covers = next(iter(sets.items()))
        excluded = find_excluded(context.spec, name, kept)
        return (ApplyPart(optimizer=name, models=kept, gradients=value, covers=covers, excluded=excluded),)
    return tuple(
        ApplyPart(
            optimizer=model,
            models=(model,),
            gradients=value,
            covers=covers,
            excluded=find_excluded(context.spec, name, (model,)),
        )
        for model in kept
        for value, covers in sets.items()
        if model in covers
    )
