"""Lowering of ``update``: gradient, clip, and the optimizer's write."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from compiler.facts.optimizers import find_ruled
from compiler.facts.steppers import find_excluded, find_givers, find_model_cells, find_stepped_cells, is_kept
from compiler.ir.cell import optimizer_cell
from compiler.ir.instructions import Apply, ApplyPart, Instruction, Transform
from compiler.ir.program import window_of
from compiler.ir.value import Read, Setting, Use, Write
from compiler.lower.accumulate import Windows
from compiler.lower.context import LoweringContext
from compiler.lower.regularization import find_projections, regularize
from compiler.lower.terms import Share, is_counted, lower_counted, lower_gradient_of, lower_parts, lower_shares
from compiler.lower.transform import transform_node
from compiler.lower.verdict import (
    bind_update,
    check_final_gradients,
    check_gradients,
    find_filled,
    find_update_verdicts,
)
from graphspec.declare.ops import UpdateOp


def lower_update(name: str, op: UpdateOp, context: LoweringContext) -> tuple[Instruction, ...]:
    """Return the chain of an update: its final gradients, those of others for what it shares with them, its write.

    The gradients of other updates are added where those fire. It changes nothing, so it may be called again to learn
    which sets the write takes.
    """
    chain, sets = _lower_gradients(name, op, context)
    open_sets = context.find_open(sets, chain)
    givers, verdicts = find_givers(context.spec).get(name, ()), find_update_verdicts(chain)
    others = dict[str, None]()  # the verdicts over what others add
    if givers:
        ((value, models),) = sets.items()
        given: dict[str, tuple[str, ...]] = {}
        made = [*chain]
        for other in givers:
            giver = context.spec.ops[other]
            assert isinstance(giver, UpdateOp)
            nodes, found = _lower_gradients(other, giver, context)
            given |= found
            made += nodes
            others |= dict.fromkeys(find_update_verdicts(nodes))
        may_miss = bool(context.find_open((value, *given), made))
        node = _transform(f"{name}.shared", name, "share", {value: models, **given}, context, may_miss=may_miss)
        uses = (node.uses[0], *(replace(use, optional=True) for use in node.uses[1:]))
        shared = replace(node, models=models, spans=(models, *given.values()), uses=uses)
        sets = {shared.output: models}
        checks = check_final_gradients(name, op, sets, chain, context, shared.output)
        chain, open_sets = (*chain, shared, *checks), context.find_open(sets, (shared,))
        verdicts = (*verdicts, *find_update_verdicts(checks))
    write = _lower_apply(name, op, sets, context, open_sets)
    return (*chain, bind_update(write, op, verdicts, tuple(others), find_filled(chain), context.spec))


def _lower_gradients(
    name: str, op: UpdateOp, context: LoweringContext
) -> tuple[tuple[Instruction, ...], Mapping[str, tuple[str, ...]]]:
    """Return the nodes of an update before its write, and the sets they give: gradient (unless given) to clip.

    In micro-batches the gradient of a loss with counts of its own is divided by them.
    """
    chain: list[Instruction] = []
    sets: Mapping[str, tuple[str, ...]] = {value: context.value(value).models for value in op.gradients or ()}
    if op.loss is not None:
        sets = {name: op.update}
        if name in context.accumulating and is_counted(lower_shares(op.loss, context)):
            chain = []  # its windows take the gradients themselves
        elif context.split and is_counted(parts := lower_parts(op.loss, context)):
            chain += lower_counted(name, parts, op.update, name, op.missing, context)
        else:
            share = Share(loss=op.loss)
            chain += lower_gradient_of(
                share, op=name, models=op.update, output=name, missing=op.missing, context=context
            )
    if op.window > 1:
        windows = Windows(name, op, context)
        sets = {windows.accumulate(value): models for value, models in sets.items()}
        taken = [*chain, *windows.taken, *check_gradients(name, op, context, windows.shared)]
        chain = [replace(each, gate=window_of(name)) if each.op == name else each for each in taken] + windows.nodes
    closed, sets = _close(name, op, sets, context, context.find_open(sets, chain))
    chain += closed
    penalties, sets = regularize(name, op, sets, context, context.find_open(sets, chain))
    chain += penalties
    is_given = op.loss is None and not chain
    whole = op.optimizer is not None or op.clip is not None or _is_sharing(name, context)
    if (len(sets) > 1 and whole) or (is_given and op.clip is None and _is_sharing(name, context)):
        may_miss = bool(context.find_open(sets, chain))
        joined = _transform(f"{name}.joined", name, "join", sets, context, may_miss=may_miss)
        chain.append(joined)
        sets = {joined.output: joined.models}
    if op.clip is not None:
        (value, models), *_ = sets.items()
        limit = context.number(op.clip.limit, name, "clip", op.clip.kind)
        eps = context.number(op.clip.epsilon, name, "clip", "eps")
        options: dict[str, Setting] = {"norm": limit, "eps": eps}
        if op.clip.agc is not None:
            options = {"clipping": limit, "eps": eps}
        elif op.clip.value is not None:
            options = {"value": limit}
        elif op.clip.per == "parameter":
            options["per"] = "parameter"
        clipped = transform_node(
            f"{name}.clipped",
            op=name,
            function=f"clip_{op.clip.kind}",
            inputs=(value,),
            models=models,
            options=options,
            context=context,
            may_miss=bool(context.find_open((value,), chain)),
        )
        chain.append(clipped)
        sets = {clipped.output: models}
    subject = window_of(name) if op.window > 1 else name
    return (*chain, *check_final_gradients(name, op, sets, chain, context, subject)), sets


def _is_sharing(name: str, context: LoweringContext) -> bool:
    """Return whether an update gives gradients to another, or takes some: then it has one set, which is its own."""
    kept = find_stepped_cells(context.spec, name)
    return name in find_givers(context.spec) or len(kept) < len(find_model_cells(context.spec)[name])


def _close(
    name: str, op: UpdateOp, sets: Mapping[str, tuple[str, ...]], context: LoweringContext, open_sets: frozenset[str]
) -> tuple[tuple[Instruction, ...], Mapping[str, tuple[str, ...]]]:
    """Return the nodes that reject missing gradients of an update, or fill in zeros, and the resulting sets."""
    if op.missing == "skip" or open_sets.isdisjoint(sets):
        return (), sets
    nodes: list[Instruction] = []
    found: dict[str, tuple[str, ...]] = {}
    function, word = ("fill", "filled") if op.missing == "zero" else ("require", "whole")
    for value, models in sets.items():
        target = (f"{name}.{word}" if len(sets) == 1 else f"{name}.{word}.{value}") if value in open_sets else value
        found[target] = models
        if value in open_sets:
            nodes.append(_transform(target, name, function, {value: models}, context, may_miss=True))
    return tuple(nodes), found


def _transform(
    node: str, op: str, function: str, sets: Mapping[str, tuple[str, ...]], context: LoweringContext, *, may_miss: bool
) -> Transform:
    """Return a built-in transform without options of sets in a row."""
    models = tuple(model for models in sets.values() for model in models)
    inputs = tuple(sets)
    return transform_node(
        node, op=op, function=function, inputs=inputs, models=models, context=context, may_miss=may_miss
    )


def _lower_apply(
    name: str, op: UpdateOp, sets: Mapping[str, tuple[str, ...]], context: LoweringContext, open_sets: frozenset[str]
) -> Instruction:
    """Return the write of an update: it steps the newest parameters of the models, whichever op wrote them."""
    kept = tuple(model for model in op.update if is_kept(context.spec, name, model))
    # one part for the update's own optimizer, or one part per model for theirs
    owned = [(model, (model,), value, covers) for model in kept for value, covers in sets.items() if model in covers]
    if op.optimizer is not None:
        value, covers = next(iter(sets.items()))
        owned = [(name, kept, value, covers)]
    parts: list[ApplyPart] = []
    for optimizer, models, value, covers in owned:
        groups = find_ruled(context.spec, optimizer, models)
        whole = ApplyPart(
            optimizer=context.phases.get(optimizer, optimizer),
            models=models,
            gradients=value,
            covers=covers,
            excluded=find_excluded(context.spec, name, models),
            may_miss=value in open_sets,
            is_divided=bool(groups),
        )
        parts += (whole, *(replace(whole, optimizer=each.name, models=(each.choice[0],)) for each in groups))
    cells = find_stepped_cells(context.spec, name) + tuple(optimizer_cell(part.optimizer) for part in parts)
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
        parts=tuple(parts),
        projections=projections,
    )
