"""What is known of the values of a spec before anything runs: one forward inference over its ops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from compiler.ir.digraph import find_cycles, sort
from compiler.types.calls import BATCH, COUPLING, SUMMING, find_linear, has_batch, is_linear
from compiler.types.dimension import UNKNOWN, TensorType
from graphspec.analysis.gradient_sets import find_gradient_sets
from graphspec.analysis.remembering import once_per_spec
from graphspec.declare.equations import read_equation
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import CallOp, GradientOp, LossOp, MetricOp, Op, RandomOp
from graphspec.declare.parts import Part
from graphspec.declare.subscripts import read_subscript

REDUCING = COUPLING | {"mean", "sum", "all_mean"}
"""Calls that remove an axis."""


class Value(Struct, frozen=True, kw_only=True):
    """An input, a state or the result of an op; the result of some ops is a gradient set."""

    type: TensorType = UNKNOWN
    models: tuple[str, ...] = ()
    """Of a gradient set: the models it covers, in order."""
    may_miss: bool = False
    """Of a gradient set: some parameter may have no gradient."""
    optional: bool = False
    """Some steps do without it: a lazy loss, or a sum of lazy losses alone."""
    is_batched: bool = True
    """It depends on the batch: every part of the batch has another."""
    has_rows: bool = False
    """It has one row per sample."""
    is_summed: bool = False
    """It is a sum over the batch where others are a mean, or linear in such a sum."""
    within: tuple[Part, ...] = ()
    """The iterations and alternatives that its op belongs to."""
    is_total: bool = False
    """Of a gradient: it is a sum over the batch, since it is that of a value with rows."""


Values: TypeAlias = Mapping[str, Value]
UNTYPED = Value()
"""A value of which nothing is known."""


def find_whole(values: Values) -> frozenset[str]:
    """Return the values that do not depend on the batch: the same for all of its parts."""
    return frozenset(name for name, each in values.items() if not each.is_batched)


def find_rows(values: Values) -> frozenset[str]:
    """Return the values with one row per sample."""
    return frozenset(name for name, each in values.items() if each.has_rows)


@once_per_spec
def sort_ops(spec: GraphSpec) -> tuple[str, ...]:
    """Return the ops in data order; as they are listed where there is none."""
    makers = {value: name for name, op in spec.ops.items() for value in (name, *op.defines(name))}
    before = {
        name: [makers[each.name] for each in op.operands() if each.name in makers] for name, op in spec.ops.items()
    }
    is_cyclic = bool(find_cycles((one, name) for name, each in before.items() for one in each))
    return tuple(spec.ops) if is_cyclic else sort(before)


def infer_values(spec: GraphSpec, types: Mapping[str, TensorType]) -> Values:
    """Return every value of a spec; ``types``: as far as they are known.

    Walks the ops in data order. In a spec with a cycle, which is refused later, nothing is known of a value that is
    used before it is defined.
    """
    sets = find_gradient_sets(spec)
    values: dict[str, Value] = {}
    for name, entry in spec.inputs.items():
        has_rows = entry.shape is None or BATCH in entry.shape
        values[name] = Value(type=TensorType(entry.shape, entry.dtype), is_batched=has_rows, has_rows=has_rows)
    for name, state in spec.state.items():
        values[name] = Value(type=TensorType(state.shape, state.dtype), is_batched=False)
    for name in sort_ops(spec):
        op = spec.ops[name]
        made = _infer(op, types.get(name, UNKNOWN), values)
        for value in dict.fromkeys((name, *op.defines(name))):
            models = sets.get(value, ())
            values[value] = Value(
                type=types.get(value, UNKNOWN),
                models=models,
                may_miss=bool(models) and made.may_miss,
                optional=made.optional,
                is_batched=made.is_batched,
                has_rows=made.has_rows,
                is_summed=made.is_summed,
                within=op.within,
                is_total=made.is_total,
            )
    return values


def _infer(op: Op, known: TensorType, values: Values) -> Value:
    """Return what the results of an op have in common, from its operands; ``known``: the type of the first."""
    operands = [values[each.name] for each in op.operands() if each.name in values]  # models are none
    is_drawn = is_batched = isinstance(op, RandomOp) and BATCH in (op.shape or ())
    takes_rows = may_miss = False
    for each in operands:
        takes_rows, may_miss = takes_rows or each.has_rows, may_miss or each.may_miss
        is_batched = is_batched or each.is_batched
    has_rows = is_drawn or (takes_rows and not _is_reduced(op, known))
    made = Value(may_miss=may_miss, is_batched=is_batched, has_rows=has_rows)
    match op:
        case LossOp():
            return replace(made, optional=op.is_lazy, is_summed=op.reduction == "sum")
        case CallOp():
            function = op.call.name("torch") if op.call.is_builtin else ""
            names = (each.name for each in op.operands())
            whole = frozenset(name for name in names if not values.get(name, UNTYPED).is_batched)
            linear = find_linear(op, whole) if is_linear(op, whole) else ()
            sums_rows = function in SUMMING and not has_rows and takes_rows
            is_summed = sums_rows or any(values.get(each, UNTYPED).is_summed for each in linear)
            optional = function == "add" and all(each.optional for each in operands)
            return replace(made, optional=optional, is_summed=is_summed)
        case GradientOp():
            loss = values.get(op.gradient, UNTYPED)
            is_row = loss.has_rows if loss.type.shape is None else has_batch(loss.type.shape)
            return replace(made, may_miss=op.unconnected == "skip", is_total=bool(op.grad_outputs) and is_row)
        case _:
            return made


def _is_reduced(op: Op, known: TensorType) -> bool:
    """Return whether an op leaves no row per sample: by its shape if known, else by what it does.

    Without a known shape, a call that reduces the first axis keeps no rows: it gives a scalar, or one number for each
    other position.
    """
    if isinstance(op, CallOp) and op.call.is_builtin:
        if known.shape is not None:
            return not has_batch(known.shape)
        if op.call.name("torch") == "subscript":
            return isinstance(read_subscript(op.args["at"]).at(0), int)
        if op.call.name("torch") == "einsum":
            equation = read_equation(op.args["equation"])
            return not any(axes[:1] in equation.result for axes in equation.factors)
        axis = op.args.get("axis")
        over_batch = axis is None or axis == 0 or (isinstance(axis, tuple | list) and 0 in axis)
        return op.call.name("torch") in REDUCING and over_batch
    return isinstance(op, MetricOp) or (isinstance(op, LossOp) and op.reduction != "none")
