"""Counts of losses by the letter: which terms of a loss bring one of their own, and one term apart from the others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import CallOp, LossOp
from tests.oracle.functions import is_counted
from tests.oracle.numbers import Array

if TYPE_CHECKING:
    from tests.oracle.world import World

REST = ""
"""The term that stands for all that have no count of their own."""


def is_own(spec: GraphSpec, value: str) -> bool:
    """Return whether a value is a loss with a count of its own: so is a mean over sizes that change."""
    op = spec.ops.get(value)
    if not isinstance(op, LossOp) or op.reduction in ("sum", "none"):
        return False
    is_uneven = op.loss.is_builtin and op.loss.name("torch") != "kl_div" and _has_free_sizes(spec, value)
    return is_uneven or is_counted(op.loss.name("torch"), op.reduction, op.args)


def _has_free_sizes(spec: GraphSpec, value: str) -> bool:
    """Return whether a value is made of an input with more free sizes than the batch's."""
    if value in spec.inputs:
        return any(isinstance(size, str) and size != "batch" for size in spec.inputs[value].shape or ())
    owner = next((op for name, op in spec.ops.items() if value in op.defines(name)), None)
    return owner is not None and any(_has_free_sizes(spec, reference.name) for reference in owner.operands())


def find_pieces(spec: GraphSpec, loss: str) -> list[str]:
    """Return the terms by which a loss is taken apart; none where all of it counts by rows."""
    terms = [*dict.fromkeys(_find_terms(spec, loss))]
    own = [term for term in terms if is_own(spec, term)]
    return [*([REST] if own and len(own) < len(terms) else []), *own]


def find_ways(spec: GraphSpec, loss: str) -> set[str]:
    """Return how the terms of a loss combine over micro-batches: by a count of their own, by rows, or as sums."""
    ops = {term: spec.ops.get(term) for term in _find_terms(spec, loss)}
    summed = {term for term, op in ops.items() if isinstance(op, LossOp) and op.reduction == "sum"}
    return {term if is_own(spec, term) else "sums" if term in summed else "rows" for term in ops}


def _find_terms(spec: GraphSpec, value: str) -> Iterator[str]:
    op = spec.ops.get(value)
    if isinstance(op, CallOp) and _is_sum(op):
        for _, name in op.inputs.references():
            yield from _find_terms(spec, name)
    else:
        yield value


def _is_sum(op: CallOp) -> bool:
    """Return whether a call adds terms, or multiplies one by a constant."""
    operands = [one for _, one in op.inputs.items()]
    named = [one for one in operands if isinstance(one, str)]
    match op.call.name("torch"):
        case "add" | "sub":
            return True
        case "mul" | "neg":
            return len(named) == 1
        case "div":
            return named == operands[:1]
        case _:
            return False


def take_apart(world: World, value: str, term: str, leaf: object) -> Array:
    """Return what one term is of a loss: of one with its own count the sum; ``leaf`` gives the value of any other."""
    op = world.step.meaning.ops.get(value)
    if not (isinstance(op, CallOp) and _is_sum(op)):
        if is_own(world.step.meaning.spec, value):
            return world.counted(value, op)[0] if value == term else _nothing(world)
        return leaf(world, value) if term == REST else _nothing(world)
    operands = [one for _, one in op.inputs.items() if not (op.call.name("torch") == "add" and world.is_absent(one))]
    found = [take_apart(world, one, term, leaf) if isinstance(one, str) else None for one in operands]
    match op.call.name("torch"):
        case "add":
            return sum((one for one in found if one is not None), start=_nothing(world))
        case "sub":
            first, second = (_nothing(world) if one is None else one for one in found)
            return first - second
        case "neg":
            return -found[0]
        case "div":
            return found[0] / float(operands[1])
        case _:
            (kept,) = [one for one in found if one is not None]
            return kept * float(np.prod([float(one) for one in operands if not isinstance(one, str)]))


def _nothing(world: World) -> Array:
    return world.numbers.lift(np.zeros(1))
