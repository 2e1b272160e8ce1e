"""The terms of which a loss is the sum, with their factors, read off the nodes that compute it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, prod
from typing import NamedTuple, TypeGuard

from compiler.ir.digraph import sort
from compiler.ir.instructions import Evaluate, Instruction
from compiler.ir.value import Constant, Ref


class Term(NamedTuple):
    """A value, times the shares of micro-batches that weigh it."""

    value: str
    shares: tuple[str, ...] = ()


def find_terms(loss: str, nodes: Mapping[str, Instruction], producers: Mapping[str, str]) -> Mapping[Term, float]:
    """Return the terms of which a loss is the sum, each with its factor; constants are left out."""
    split: dict[Term, Sequence[tuple[Term, float]]] = {}
    whole = set[Term]()  # those that add up nothing else
    pending = [Term(loss)]
    while pending:
        term = pending.pop()
        if term not in split:
            node = nodes.get(producers.get(term.value, ""))
            parts = _split(node) if isinstance(node, Evaluate) else None
            whole.update(() if parts is not None else (term,))
            split[term] = [(Term(each.value, term.shares + each.shares), factor) for each, factor in parts or ()]
            pending.extend(each for each, _ in reversed(split[term]))
    factors = dict.fromkeys(split, 0.0) | {Term(loss): 1.0}
    for term in reversed(sort({term: [each for each, _ in parts] for term, parts in split.items()})):
        for each, factor in split[term]:  # all that it is a term of have been taken apart before it
            factors[each] += factors[term] * factor
    return {term: factors[term] for term in split if term in whole}


def _split(node: Evaluate) -> tuple[tuple[Term, float], ...] | None:
    """Return the terms that a call adds up, each with its factor; None where it does something else."""
    operands = [each.operand for each in node.arguments]
    if not node.function.builtin or node.family not in ("call", "internal"):
        return None
    if not all(_is_read(each) or _is_number(each) for each in operands):
        return None
    values = tuple(each.name for each in operands if _is_read(each))
    numbers = tuple(float(each.value) for each in operands if _is_number(each))
    match node.function.name:
        case "add":
            return tuple((Term(value), 1.0) for value in values)
        case "sub":
            signs = zip(operands, (1.0, -1.0), strict=True)
            return tuple((Term(operand.name), sign) for operand, sign in signs if _is_read(operand))
        case "neg":
            return tuple((Term(value), -1.0) for value in values)
        case "mul" if len(values) == 1:
            return ((Term(values[0]), prod(numbers)),)
        case "div" if len(numbers) == 1 and _is_read(operands[0]) and numbers[0]:
            return ((Term(values[0]), 1 / numbers[0]),)
        case "weigh" if len(values) == 2:
            return ((Term(*values[:1], shares=values[1:]), 1.0),)
        case _:
            return None


def _is_read(operand: object) -> TypeGuard[Ref]:
    """Return whether an operand is a value through which a gradient may run."""
    return isinstance(operand, Ref) and not operand.detach


def _is_number(operand: object) -> TypeGuard[Constant]:
    """Return whether an operand is a number that never changes."""
    return isinstance(operand, Constant) and isfinite(operand.value)
