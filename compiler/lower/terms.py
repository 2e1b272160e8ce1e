"""Shares of a loss: its terms, grouped by what counts them; the gradient of each share is combined by its count."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from compiler.batch.losses import find_addends
from compiler.batch.making import evaluate
from compiler.ir.digraph import sort
from compiler.ir.instructions import Evaluate, Instruction, Transform
from compiler.ir.value import Argument, FunctionRef, Operand, Ref, Use
from compiler.lower.context import LoweringContext, lower_operand, make_optional, uses_of
from compiler.lower.evaluate import count_of, lower_call, sum_of
from compiler.lower.transform import Missing, gradient_node, transform_node
from compiler.types.calls import ADDITIVE, find_linear, is_linear
from graphspec.declare.ops import CallOp, GradientOp

Made: TypeAlias = tuple[str | None, tuple[Instruction, ...]]
"""A value, None where nothing of it remains, and the nodes that compute it."""


class Share(Struct, frozen=True, kw_only=True):
    """One share of a loss: the value that is differentiated, and the value that counts it; without one rows do."""

    loss: str
    counted: str = ""
    """The loss whose count that is."""
    term: str = ""
    """The suffix that distinguishes it from other shares; empty where there are none."""
    is_lazy: bool = False
    """It may be absent from a step in which there are others: nothing but lazy terms is in it."""
    whole: str = ""
    """The loss that it is a share of."""
    terms: tuple[str, ...] = ()
    """The terms of the loss that are in it."""
    nodes: tuple[Instruction, ...] = ()
    """The nodes that compute the value."""

    @property
    def count(self) -> str:
        """Return the value that counts it; nothing where rows do."""
        return count_of(self.counted) if self.counted else ""


def lower_shares(loss: str, context: LoweringContext) -> tuple[Share, ...]:
    """Return the shares of a loss: what counts by rows, or is a sum, together; every term with its own count alone."""
    plain, counted = dict[str, str](), list[Share]()
    for term in find_addends(context.spec, loss):
        if term in context.counted:
            share = _lower_share(loss, {term: sum_of(term)}, f"of.{term}", context)
            counted.append(replace(share, counted=term))
        else:
            plain[term] = term
    found = [_lower_share(loss, plain, "rows", context)] if plain else []
    return _normalize_shares(loss, [*found, *counted])


def lower_parts(
    loss: str, context: LoweringContext, terms: Collection[str] | None = None, prefix: str = ""
) -> tuple[Share, ...]:
    """Return the shares of a loss, or of some of its terms, in a step of micro-batches.

    There a factor need not be a constant to keep terms apart: what does not depend on the batch is one for all parts.
    """
    terms = find_addends(context.spec, loss) if terms is None else terms
    plain, counted = dict[str, str](), dict[str, None]()
    for term in terms:
        for value in find_addends(context.spec, term, context.whole):
            if value in context.counted:
                counted[value] = None
            else:
                plain[value] = value
    wanted = [("", f"{prefix}rows", plain)] if plain else []
    wanted += [(value, f"{prefix}of.{value}", {value: sum_of(value)}) for value in counted]
    found: list[Share] = []
    for own, suffix, kept in wanted:
        nodes, left = list[Instruction](), dict[str, str]()
        for term in terms:
            value, made = _keep(term, kept, suffix, context, context.whole)
            nodes += made
            if value is not None:
                left[term] = value
        share = _lower_share(loss, left, suffix, context)
        is_lazy = all(context.value(term).optional for term in kept)
        found.append(replace(share, nodes=(*nodes, *share.nodes), counted=own, is_lazy=is_lazy))
    return _normalize_shares(loss, found)


def _normalize_shares(loss: str, shares: Sequence[Share]) -> tuple[Share, ...]:
    """Return several shares unchanged, a single one that counts without its term, any other as the loss itself."""
    if len(shares) > 1:
        return tuple(shares)
    (share,) = shares
    return (replace(share, term="", is_lazy=False) if share.count else Share(loss=loss),)


def _lower_share(loss: str, kept: Mapping[str, str], suffix: str, context: LoweringContext) -> Share:
    """Return the share of a loss that some of its terms are, or what is left of them."""
    value, nodes = _keep(loss, kept, suffix, context)
    assert value is not None
    is_lazy = all(context.value(term).optional for term in kept)
    return Share(loss=value, term=suffix, nodes=nodes, is_lazy=is_lazy, whole=loss, terms=tuple(kept))


def _keep(
    value: str, kept: Mapping[str, str], suffix: str, context: LoweringContext, whole: Collection[str] | None = None
) -> Made:
    """Return what remains of a value when only some of its terms are kept, each under a replacement name.

    What does not depend on the batch (``whole``) is no term.
    """
    terms: dict[str, tuple[str, ...]] = {}
    sums: dict[str, CallOp] = {}  # what adds up others
    pending = [value]
    while pending:
        each = pending.pop()
        op = context.spec.ops.get(each)
        if each not in terms:
            terms[each] = ()
            if isinstance(op, CallOp) and is_linear(op, whole):
                sums[each], terms[each] = op, find_linear(op, whole)
                pending.extend(terms[each])
    left: dict[str, str | None] = {}
    nodes: list[Instruction] = []
    lazy = set[str]()  # what of that may be absent
    for name in sort(terms):
        if name in sums:
            call = lower_call(name, sums[name], context)[0]
            assert isinstance(call, Evaluate)
            left[name], made = _keep_of(call, {term: left[term] for term in terms[name]}, suffix, context, lazy)
            nodes += made
            lazy.update(name for each in made if all(use.optional for use in each.uses) for name in each.defines)
        else:
            left[name] = kept.get(name)
    return left[value], tuple(nodes)


def _keep_of(
    call: Evaluate, left: Mapping[str, str | None], suffix: str, context: LoweringContext, lazy: Collection[str]
) -> Made:
    """Return what remains of a call, given what remains of its terms; of those ``lazy`` ones may be absent.

    It is the call on what remains of its arguments, or the value itself where that is all of them. Constants are left
    out, which have no gradient.
    """
    found: list[Argument | None] = []  # what remains of each argument; None of what is no term, too
    for argument in call.arguments:
        value = left.get(argument.operand.name) if isinstance(argument.operand, Ref) else None
        found.append(None if value is None else replace(argument, operand=Ref(name=value)))
    arguments = tuple(each for each in found if each is not None)
    if not arguments:
        return None, ()
    if call.function.name not in ADDITIVE:
        arguments = tuple(kept or each for kept, each in zip(found, call.arguments, strict=True))
    elif len(arguments) == 1 and call.function.name == "sub" and found[0] is None:
        call = replace(call, function=FunctionRef(name="neg", builtin=True))
    elif len(arguments) == 1:
        only = arguments[0].operand
        assert isinstance(only, Ref)
        return only.name, ()
    if arguments == call.arguments:
        return call.defines[0], ()
    name = f"{call.id}.{suffix}"
    # what remains of an argument may be absent where the argument is not; what may be absent itself only sums can take
    needed = set[str]() if call.function.name == "add" else {use.value for use in call.uses}
    uses = tuple(
        replace(use, optional=use.value not in needed and (use.value in lazy or context.value(use.value).optional))
        for use in uses_of(arguments)
    )
    rest = replace(call, id=name, label=f"evaluate {name}", uses=uses, arguments=arguments, outputs=(name,))
    return name, (rest,)


def lower_gradient_of(
    share: Share,
    *,
    op: str,
    models: tuple[str, ...],
    output: str,
    missing: Missing,
    context: LoweringContext,
    seeds: tuple[Operand, ...] = (),
) -> tuple[Instruction, ...]:
    """Return what makes a share of a loss, and the gradient of it with respect to models, times ``seeds``."""
    node = gradient_node(
        f"{output}.gradient",
        op=op,
        label=f"gradient {output}",
        loss=share.loss,
        models=models,
        context=context,
        output=output,
        seeds=seeds,
        unconnected=missing,
        term=share.term,
    )
    return (*share.nodes, make_optional(node, (share.loss,)) if share.is_lazy else node)


def find_seeds(op: GradientOp) -> tuple[Operand, ...]:
    """Return the factor of a gradient."""
    return tuple(lower_operand(operand) for operand in op.grad_outputs or ())


def find_missing(shares: Collection[Share], wanted: Missing) -> Missing:
    """Return what an absent gradient of one share means: of several it is skipped, and handled once they are added.

    A gradient filled with zeros needs no such step, unless whole shares are absent from some steps.
    """
    is_whole = len(shares) == 1 or (wanted == "zero" and not any(share.is_lazy for share in shares))
    return wanted if is_whole else "skip"


def is_counted(shares: Collection[Share]) -> bool:
    """Return whether some share of a loss has a count of its own."""
    return any(share.count for share in shares)


def lower_counted(
    op: str,
    shares: Sequence[Share],
    models: tuple[str, ...],
    output: str,
    missing: Missing,
    context: LoweringContext,
    seeds: tuple[Operand, ...] = (),
) -> tuple[Instruction, ...]:
    """Return the gradient set of a loss with counts of its own, in a step of several micro-batches, from its shares.

    Their gradients are those of sums, which are divided by the counts of all of them, then added.
    """
    wanted = find_missing(shares, missing)
    nodes: list[Instruction] = []
    sets: list[str] = []
    for share in shares:
        taken = f"{output}.{share.term}" if share.term else f"{output}.sum"
        nodes += lower_gradient_of(
            share, op=op, models=models, output=taken, missing=wanted, context=context, seeds=seeds
        )
        divided = _divide(share, op, taken, models, wanted == "skip", context) if share.count else ()
        made = [value for node in divided for value in node.defines]
        nodes += [make_optional(node, (taken, share.count, *made)) for node in divided] if share.is_lazy else divided
        sets.append(divided[-1].defines[0] if divided else taken)
    lazy = frozenset(value for value, share in zip(sets, shares, strict=True) if share.is_lazy)
    total = add_shares(f"{output}.added", op, sets, models, context, may_miss=wanted == "skip", lazy=lazy)
    if lazy.issuperset(sets):  # a step that has none of them has no loss
        total = replace(total, uses=(*total.uses, Use(value=shares[0].whole, differentiable=False)))
    if missing == "zero" and wanted == "skip":
        nodes.append(total)
        total = transform_node(
            f"{output}.all", op=op, function="fill", inputs=total.defines, models=models, context=context, may_miss=True
        )
    return *nodes, replace(total, output=output)


def _divide(
    share: Share, op: str, taken: str, models: tuple[str, ...], may_miss: bool, context: LoweringContext
) -> tuple[Instruction, ...]:
    """Return what divides a gradient set by the count of its share."""
    one, place = f"{share.count}.inverse", context.place(share.counted)
    part = evaluate(one, "inverse", (share.count,), (one,), op=share.counted, place=place, constant=True)
    mean = transform_node(
        f"{taken}.mean",
        op=op,
        function="mul_sets",
        inputs=(taken, one),
        models=models,
        context=context,
        may_miss=may_miss,
    )
    return part, mean


def add_shares(
    name: str,
    op: str,
    sets: Collection[str],
    models: tuple[str, ...],
    context: LoweringContext,
    *,
    may_miss: bool,
    lazy: Collection[str] = (),
) -> Transform:
    """Return the sum of the gradient sets of all shares; of those that are ``lazy`` if they are there."""
    node = transform_node(
        name, op=op, function="add_sets", inputs=tuple(sets), models=models, context=context, may_miss=may_miss
    )
    return make_optional(node, lazy)


def close_shares(
    values: Mapping[str, Share], op: str, wanted: Missing, models: tuple[str, ...], context: LoweringContext
) -> Transform:
    """Return the node that requires a gradient of some share for every parameter, or fills in zeros.

    Its result is the first set that is present; ``values`` are the sets of all shares.
    """
    first = next(iter(values))
    inputs = tuple(values) if wanted == "error" else (first,)
    function = "require" if wanted == "error" else "fill"
    node = transform_node(
        f"{first}.whole", op=op, function=function, inputs=inputs, models=models, context=context, may_miss=True
    )
    return make_optional(node, [value for value, share in values.items() if share.is_lazy])
