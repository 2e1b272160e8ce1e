"""Shares of a loss: its terms by what they count, each with a loss of its own, whose gradient is combined by that."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, TypeAlias

from compiler.gathering import ADDITIVE, find_addends, is_linear
from compiler.instructions import Evaluate, Gradient, Transform
from compiler.ir import Node
from compiler.operands import Argument, FunctionRef, Ref
from compiler.ops.context import Lowering, uses_of
from compiler.ops.derivation import gradient_node
from compiler.ops.evaluate import count_of, lower_call, sum_of
from compiler.ops.transform import transform_node
from compiler.parts.making import evaluate
from graphspec.ops import CallOp

Missing: TypeAlias = Literal["error", "skip", "zero"]
Made: TypeAlias = tuple[str | None, tuple[Node, ...]]
"""A value, if there is something of it, and the nodes that make it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One share of a loss: the value that is differentiated, and the value that counts it; without one rows do."""

    loss: str
    count: str = ""
    term: str = ""
    """What tells it from the other shares; empty where there are none."""
    nodes: tuple[Node, ...] = ()
    """What makes the value."""


def lower_shares(loss: str, context: Lowering) -> tuple[Share, ...]:
    """Return the shares of a loss: what counts by rows, or is a sum, together; every term with its own count alone."""
    terms = find_addends(context.spec, loss)
    own = [term for term in terms if term in context.counted]
    if not own:
        return (Share(loss=loss),)
    plain = [term for term in terms if term not in context.counted]
    found = [_lower_share(loss, plain, "rows", context)] if plain else []
    found += [replace(_lower_share(loss, [term], f"of.{term}", context), count=count_of(term)) for term in own]
    return tuple(found) if len(found) > 1 else (replace(found[0], term=""),)


def _lower_share(loss: str, terms: Collection[str], suffix: str, context: Lowering) -> Share:
    """Return the share of a loss that some of its terms are."""
    value, nodes = _keep(loss, terms, suffix, context)
    assert value is not None
    return Share(loss=value, term=suffix, nodes=nodes)


def _keep(value: str, terms: Collection[str], suffix: str, context: Lowering) -> Made:
    """Return what is left of a loss with some of its terms; constants are left out, which have no gradient."""
    op = context.spec.ops.get(value)
    if not (isinstance(op, CallOp) and is_linear(op)):
        kept = sum_of(value) if value in context.counted else value
        return (kept if value in terms else None), ()
    node = lower_call(value, op, context)[0]
    call = node.instruction
    assert isinstance(call, Evaluate)
    made = [_keep_argument(each, terms, suffix, context) for each in call.arguments]
    nodes = tuple(each for _, found in made for each in found)
    if call.function.name in ADDITIVE:
        return _add_kept(node, [argument for argument, _ in made], suffix, nodes)
    found = [argument or each for (argument, _), each in zip(made, call.arguments, strict=True)]
    is_kept = any(argument is not None for argument, _ in made)
    return _call_kept(node, found, suffix, nodes) if is_kept else (None, nodes)


def _keep_argument(
    argument: Argument, terms: Collection[str], suffix: str, context: Lowering
) -> tuple[Argument | None, tuple[Node, ...]]:
    """Return what is left of an argument, if something is."""
    if not isinstance(argument.operand, Ref):
        return None, ()
    value, nodes = _keep(argument.operand.name, terms, suffix, context)
    return (None if value is None else replace(argument, operand=Ref(name=value))), nodes


def _add_kept(node: Node, found: list[Argument | None], suffix: str, nodes: tuple[Node, ...]) -> Made:
    """Return the sum, or difference, of those arguments of which something is left."""
    kept = [each for each in found if each is not None]
    assert isinstance(node.instruction, Evaluate)
    if len(kept) != 1:
        return _call_kept(node, kept, suffix, nodes) if kept else (None, nodes)
    if node.instruction.function.name == "sub" and found[0] is None:
        negative = replace(node.instruction, function=FunctionRef(name="neg", builtin=True))
        return _call_kept(replace(node, instruction=negative), kept, suffix, nodes)
    only = kept[0].operand
    assert isinstance(only, Ref)
    return only.name, nodes


def _call_kept(node: Node, arguments: list[Argument], suffix: str, nodes: tuple[Node, ...]) -> Made:
    """Return the call of what is left; the node itself where that is all of it."""
    assert isinstance(node.instruction, Evaluate)
    if tuple(arguments) == node.instruction.arguments:
        return node.defines[0], nodes
    name = f"{node.id}.{suffix}"
    instruction = replace(node.instruction, arguments=tuple(arguments), outputs=(name,))
    uses = uses_of(instruction.arguments)
    made = replace(node, id=name, label=f"call {name}", instruction=instruction, uses=uses, defines=(name,))
    return name, (*nodes, made)


def lower_gradient_of(
    share: Share,
    *,
    op: str,
    models: tuple[str, ...],
    output: str,
    missing: Missing,
    context: Lowering,
) -> tuple[Node, ...]:
    """Return what makes a share of a loss, and the gradient of it with respect to models."""
    instruction = Gradient(
        op=op,
        place=context.place(op),
        loss=share.loss,
        models=models,
        output=output,
        scaled=context.scaled,
        unconnected=missing,
        term=share.term,
    )
    node = gradient_node(f"{output}.gradient", instruction, context, label=f"gradient {output}")
    return (*share.nodes, node)


def find_missing(shares: Collection[Share], wanted: Missing) -> Missing:
    """Return what an absent gradient of a share means: an error only where all shares lack it, which is seen later."""
    return wanted if len(shares) == 1 or wanted != "error" else "skip"


def is_counted(shares: Collection[Share]) -> bool:
    """Return whether some share of a loss has a count of its own."""
    return any(share.count for share in shares)


def lower_counted(
    op: str, loss: str, models: tuple[str, ...], output: str, missing: Missing, context: Lowering
) -> tuple[Node, ...]:
    """Return the gradient set of a loss with counts of its own, in a step of several micro-batches.

    Their gradients are those of sums, which are divided by the counts of all of them, then added.
    """
    shares = lower_shares(loss, context)
    wanted = find_missing(shares, missing)
    nodes: list[Node] = []
    sets: list[str] = []
    for share in shares:
        taken = f"{output}.{share.term}" if share.term else f"{output}.sum"
        nodes += lower_gradient_of(share, op=op, models=models, output=taken, missing=wanted, context=context)
        divided = _divide(share, op, taken, models, wanted == "skip", context) if share.count else ()
        nodes += divided
        sets.append(divided[-1].defines[0] if divided else taken)
    total = add_shares(f"{output}.added", op, sets, models, context, gaps=wanted == "skip")
    return *nodes, rename(total, output)


def _divide(
    share: Share, op: str, taken: str, models: tuple[str, ...], gaps: bool, context: Lowering
) -> tuple[Node, ...]:
    """Return what divides a gradient set by the count of its share."""
    one = f"{share.count}.inverse"
    owner = share.count.rpartition(".")[0]
    place = context.place(owner)
    part = evaluate(one, "inverse", (share.count,), (one,), op=owner, place=place, constant=True)
    mean = transform_node(
        f"{taken}.mean", op=op, function="mul_sets", inputs=(taken, one), models=models, context=context, gaps=gaps
    )
    return part, mean


def add_shares(
    name: str, op: str, sets: Collection[str], models: tuple[str, ...], context: Lowering, *, gaps: bool
) -> Node:
    """Return the sum of the gradient sets of all shares."""
    return transform_node(
        name, op=op, function="add_sets", inputs=tuple(sets), models=models, context=context, gaps=gaps
    )


def close_shares(value: str, op: str, models: tuple[str, ...], context: Lowering) -> tuple[Node, ...]:
    """Return what refuses that a parameter has no gradient of any share, and makes plain gradients of the others."""
    shared = partial(transform_node, op=op, models=models, context=context, gaps=True)
    required = shared(f"{value}.required", function="require", inputs=(value,))
    return required, shared(f"{value}.all", function="fill", inputs=required.defines)


def rename(node: Node, output: str) -> Node:
    """Return a transform that gives a set of another name."""
    assert isinstance(node.instruction, Transform)
    return replace(node, instruction=replace(node.instruction, output=output), defines=(output,))
