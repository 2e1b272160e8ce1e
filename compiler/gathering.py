"""Terms: the losses that are added up to what an update minimises, and how their batches are combined over a window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphspec.graph import GraphSpec
from graphspec.ops import CallOp, GradientOp, LossOp, Op, TransformOp, UpdateOp

ADDITIVE = frozenset({"add", "sub"})
SCALING = frozenset({"mul", "div", "neg"})


def find_gathering(spec: GraphSpec) -> Mapping[str, tuple[str, ...]]:
    """Return, by update that accumulates with regard to counts, the terms of all losses that it gathers from."""
    owners = {value: op for name, op in spec.ops.items() for value in op.defines(name)}
    found: dict[str, tuple[str, ...]] = {}
    for name, op in spec.ops.items():
        if isinstance(op, UpdateOp) and op.accumulate is not None and op.accumulate.reduce == "mean":
            losses = find_set_losses(spec, name)
            found[name] = tuple(dict.fromkeys(term for loss in losses for term in _find_terms(loss, owners)))
    return found


def find_set_losses(spec: GraphSpec, update: str) -> tuple[str, ...]:
    """Return the losses behind the gradient sets of an update: its own, or those of the gradients that it is given."""
    op = spec.ops[update]
    assert isinstance(op, UpdateOp)
    if op.loss is not None:
        return (op.loss,)
    owners = {value: each for name, each in spec.ops.items() for value in each.defines(name)}
    return tuple(dict.fromkeys(loss for value in op.gradients or () for loss in _find_set_losses(value, owners)))


def _find_set_losses(value: str, owners: Mapping[str, Op]) -> Iterator[str]:
    """Yield the losses of the gradients that a set is made from."""
    match owners.get(value):
        case GradientOp() as op:
            yield op.gradient
        case TransformOp() | CallOp() as op:
            for reference in op.operands():
                yield from _find_set_losses(reference.name, owners)
        case _:
            return


def find_addends(spec: GraphSpec, loss: str) -> tuple[str, ...]:
    """Return the values that are added up to a loss, each once: `add`, `sub` and constant factors keep them apart."""
    return tuple(dict.fromkeys(_find_addends(spec, loss)))


def _find_addends(spec: GraphSpec, value: str) -> Iterator[str]:
    """Yield the values that are added up to one."""
    op = spec.ops.get(value)
    if isinstance(op, CallOp) and is_linear(op):
        for reference in op.operands():
            yield from _find_addends(spec, reference.name)
    else:
        yield value


def is_linear(op: CallOp) -> bool:
    """Return whether a call adds values up, or multiplies one by constants."""
    return op.call.is_builtin and _keeps_apart(op.call.name("torch"), op)


def find_terms(spec: GraphSpec, value: str) -> tuple[str, ...]:
    """Return the values that are added up to one; `add`, `sub`, and constant factors keep terms apart."""
    return tuple(_find_terms(value, {made: op for name, op in spec.ops.items() for made in op.defines(name)}))


def _find_terms(value: str, owners: Mapping[str, Op]) -> Iterator[str]:
    """Yield the values that are added up to one; of a gradient, those of the loss behind it."""
    op = owners.get(value)
    references = () if op is None else tuple(reference.name for reference in op.operands())
    match op:
        case GradientOp():
            yield from _find_terms(op.gradient, owners)
        case CallOp() if is_linear(op):
            for name in references:
                yield from _find_terms(name, owners)
        case LossOp() | None:
            yield value
        case _:
            yield value


def _keeps_apart(call: str, op: CallOp) -> bool:
    """Return whether a call adds values up, or multiplies one by constants; a number by a value does neither."""
    if call in ADDITIVE:
        return True
    is_first = call != "div" or isinstance(next(operand for _, operand in op.inputs.items()), str)
    return call in SCALING and is_first and sum(1 for _ in op.operands()) == 1


def are_sums(terms: tuple[str, ...], spec: GraphSpec) -> frozenset[bool]:
    """Return whether the terms are sums over a batch: all, none, or some."""
    return frozenset(is_total(spec.ops.get(term)) for term in terms)


def is_total(op: Op | None) -> bool:
    """Return whether an op adds up a batch, where others take its mean."""
    return isinstance(op, LossOp) and op.reduction == "sum"
