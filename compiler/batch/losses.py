"""Terms: the losses that add up to what an update minimises, and how batches combine over a window."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

from compiler.batch.calls import BATCH, Placement, has_batch, is_linear_call
from compiler.facts.models import Observations
from compiler.ir.instructions import Counted
from compiler.ir.program import Mode
from compiler.ir.value import Shape
from compiler.types.dimension import UNKNOWN, TensorType, is_multiple, multiply
from graphspec.analysis.modes import find_reaches
from graphspec.analysis.remembering import once_per_spec
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import CallOp, GradientOp, LossOp, MetricOp, Op, RandomOp, TransformOp, UpdateOp

Whole: TypeAlias = Collection[str] | None
"""Values that do not depend on the batch, where it matters that they do not."""
Types: TypeAlias = Mapping[str, TensorType]
"""What is known of values."""
ADDITIVE = frozenset({"add", "sub"})
SCALING = frozenset({"mul", "div", "neg"})
REDUCING = frozenset({"mean", "sum", "max", "min", "norm"})
SUMMING = frozenset({"sum", "matmul"})
"""Calls that sum along an axis."""


def find_accumulating(spec: GraphSpec) -> Mapping[str, tuple[str, ...]]:
    """Return, by update whose window combines gradients by counts, the terms of all losses that it gathers from."""
    owners = {value: op for name, op in spec.ops.items() for value in op.defines(name)}
    found: dict[str, tuple[str, ...]] = {}
    for name, op in spec.ops.items():
        if isinstance(op, UpdateOp) and op.accumulate is not None and op.window > 1 and op.accumulate.reduce == "mean":
            losses = find_set_losses(spec, name)
            found[name] = tuple(dict.fromkeys(term for loss in losses for term in _find_terms(loss, owners)))
    return found


def find_set_losses(spec: GraphSpec, update: str) -> tuple[str, ...]:
    """Return the losses whose gradient sets an update takes: its own, or those of the gradients it is given."""
    op = spec.ops[update]
    assert isinstance(op, UpdateOp)
    if op.loss is not None:
        return (op.loss,)
    owners = {value: each for name, each in spec.ops.items() for value in each.defines(name)}
    return tuple(dict.fromkeys(loss for value in op.gradients or () for loss in _find_set_losses(value, owners)))


def _find_set_losses(value: str, owners: Mapping[str, Op]) -> Iterator[str]:
    """Yield the losses of the gradients that a set is computed from."""
    match owners.get(value):
        case GradientOp() as op:
            yield op.gradient
        case TransformOp() | CallOp() as op:
            for reference in op.operands():
                yield from _find_set_losses(reference.name, owners)
        case _:
            return


def find_addends(spec: GraphSpec, loss: str, whole: Whole = None, rows: Collection[str] = ()) -> tuple[str, ...]:
    """Return the values that are added up to a loss, each once: `add`, `sub` and constant factors keep them apart.

    ``whole``: so does every call that is linear in one value, the others being of these; ``rows``: but for calls that
    read one of these.
    """
    return tuple(dict.fromkeys(_find_addends(spec, loss, whole, rows)))


def _find_addends(spec: GraphSpec, value: str, whole: Whole, rows: Collection[str]) -> Iterator[str]:
    """Yield the values that a value sums."""
    op = spec.ops.get(value)
    parts = find_linear(op, whole) if isinstance(op, CallOp) and is_linear(op, whole) else ()
    if parts and not any(name in rows for name in parts):
        for name in parts:
            yield from _find_addends(spec, name, whole, rows)
    else:
        yield value


def find_totals(spec: GraphSpec, types: Mapping[str, TensorType]) -> frozenset[str]:
    """Return the gradients of values with rows, each times what it is given: they are sums over the batch.

    ``types``: what is known of values. One whose shape is not known has rows, as far as it depends on the batch.
    """
    whole = find_whole(spec)
    found = {name: op.gradient for name, op in spec.ops.items() if isinstance(op, GradientOp) and op.grad_outputs}
    split = {name: value for name, value in found.items() if value not in whole}
    totals: set[str] = set()
    for name, value in split.items():
        op, known = spec.ops.get(value), types.get(value)
        is_reduced = isinstance(op, LossOp) and op.reduction != "none"
        if not is_reduced and (known is None or known.shape is None or has_batch(known.shape)):
            totals.add(name)
    return frozenset(totals)


def find_sums(spec: GraphSpec, ops: Collection[str]) -> frozenset[str]:
    """Return the calls that add up the losses of some updates and gradients, whose terms may be taken by themselves."""
    whole = find_whole(spec)
    found: dict[str, None] = {}
    pending: list[str] = []
    for name in ops:
        match spec.ops[name]:
            case GradientOp() as op:
                pending.append(op.gradient)
            case UpdateOp(loss=str(loss)) if loss:
                pending.append(loss)
            case _:
                continue
    while pending:
        name = pending.pop()
        op = spec.ops.get(name)
        if isinstance(op, CallOp) and name not in found and is_linear(op, whole):
            found[name] = None
            pending.extend(find_linear(op, whole))
    return frozenset(found)


def is_linear(op: CallOp, whole: Whole = None) -> bool:
    """Return whether a call adds values up, or multiplies one by constants, or by values that are ``whole``.

    A number divided by a value is not linear.
    """
    call = op.call.name("torch")
    if not op.call.is_builtin:
        return False
    if whole is None:
        is_first = call != "div" or isinstance(next(operand for _, operand in op.inputs.items()), str)
        return call in ADDITIVE or (call in SCALING and is_first and sum(1 for _ in op.operands()) == 1)
    placements = [
        Placement.REPLICATED if not isinstance(each, str) or each in whole else Placement.PARTIAL_MEAN
        for _, each in op.inputs.items()
    ]
    return op.outputs is None and Placement.PARTIAL_MEAN in placements and is_linear_call(call, placements)


def find_linear(op: CallOp, whole: Whole = None) -> tuple[str, ...]:
    """Return the values in which a call is linear: the terms of a sum, or the one that is multiplied."""
    names = tuple(reference.name for reference in op.operands())
    if whole is None or op.call.name("torch") in ADDITIVE:
        return names
    return tuple(name for name in names if name not in whole)


@once_per_spec
def find_whole(spec: GraphSpec) -> frozenset[str]:
    """Return the values that do not depend on the batch: the same for all of its parts."""
    split = _spread(_find_batches(spec), (_reads_and_makes(name, op) for name, op in spec.ops.items()))
    values = {value for name, op in spec.ops.items() for value in op.defines(name)}
    return frozenset((values | spec.inputs.keys() | spec.state.keys()) - split)


def _find_batches(spec: GraphSpec) -> Iterator[str]:
    """Yield the inputs and draws that have a row for each sample."""
    yield from (name for name, entry in spec.inputs.items() if entry.shape is None or BATCH in entry.shape)
    yield from (name for name, op in spec.ops.items() if isinstance(op, RandomOp) and BATCH in (op.shape or ()))


def find_terms(spec: GraphSpec, value: str) -> tuple[str, ...]:
    """Return the values that are added up to one; `add`, `sub`, and constant factors keep terms apart."""
    return tuple(_find_terms(value, {made: op for name, op in spec.ops.items() for made in op.defines(name)}))


def _find_terms(value: str, owners: Mapping[str, Op]) -> Iterator[str]:
    """Yield the terms that a value sums; of a gradient set, the terms of its loss."""
    match owners.get(value):
        case GradientOp() as op:
            yield from _find_terms(op.gradient, owners)
        case CallOp() as op if is_linear(op):
            for reference in op.operands():
                yield from _find_terms(reference.name, owners)
        case _:
            yield value


def are_added(terms: Collection[str], sums: Collection[str], whole: Collection[str]) -> bool:
    """Return whether the terms are added up over steps: some sum over a batch is, and terms that are all sums.

    A sum that does not depend on the batch, such as one over a parameter, is the same in every step, as a mean is.
    """
    totals = [term for term in terms if term in sums]
    return bool(totals) and (len(totals) == len(terms) or any(term not in whole for term in totals))


def find_batch_sums(spec: GraphSpec, types: Types) -> frozenset[str]:
    """Return the values that add up a batch, where others take its mean, and what is linear in one of them.

    They are losses with `reduction: sum`, and `call: sum` or a product of matrices over the rows of something.
    """
    rows, whole = find_rows(spec, types), find_whole(spec)
    found = [name for name, op in spec.ops.items() if isinstance(op, LossOp) and op.reduction == "sum"]
    calls = {name: op for name, op in spec.ops.items() if isinstance(op, CallOp)}
    for name, op in calls.items():
        is_sum = op.call.is_builtin and op.call.name("torch") in SUMMING
        if is_sum and name not in rows and any(reference.name in rows for reference in op.operands()):
            found.append(name)
    linear = {name: op for name, op in calls.items() if is_linear(op, whole)}
    return _spread(found, ((find_linear(op, whole), (name,)) for name, op in linear.items()))


def find_rows(spec: GraphSpec, types: Types) -> frozenset[str]:
    """Return the values with one row per sample, judged by shape, else by the ops that compute them.

    Without a known shape, a call that reduces the first axis keeps no rows: it gives a scalar, or one number for each
    other position.
    """
    reducing: set[str] = set()
    for name, op in spec.ops.items():
        if isinstance(op, CallOp) and op.call.is_builtin:
            shape = types.get(name, UNKNOWN).shape
            axis = op.args.get("axis")
            over_batch = axis is None or axis == 0 or (isinstance(axis, tuple | list) and 0 in axis)
            reduces = op.call.name("torch") in REDUCING and over_batch if shape is None else not has_batch(shape)
        else:
            reduces = isinstance(op, MetricOp) or (isinstance(op, LossOp) and op.reduction != "none")
        if reduces:
            reducing.add(name)
    makers = (_reads_and_makes(name, op) for name, op in spec.ops.items() if name not in reducing)
    return _spread(_find_batches(spec), makers)


def _reads_and_makes(name: str, op: Op) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the values that an op reads, and those that it computes; its own name denotes its gradient set."""
    return tuple(each.name for each in op.operands()), (name, *op.defines(name))


def _spread(found: Iterable[str], makers: Iterable[tuple[tuple[str, ...], tuple[str, ...]]]) -> frozenset[str]:
    """Return some values and all that are made of one of them, by ops that read some values and make others."""
    made_of: dict[str, list[str]] = {}
    for reads, makes in makers:
        for name in reads:
            made_of.setdefault(name, []).extend(makes)
    reached = set(found)
    pending = list(reached)
    while pending:
        fresh = set(made_of.pop(pending.pop(), ())) - reached
        reached |= fresh
        pending.extend(fresh)
    return frozenset(reached)


def find_counted(
    spec: GraphSpec, mode: Mode, observed: Observations | None = None, uneven: frozenset[str] = frozenset()
) -> Mapping[str, Counted]:
    """Return the losses whose sum and count are kept apart in a mode, and how each counts; see :func:`find_own`.

    Micro-batches are of one batch: there a row has as many elements in one as in another.
    """
    own, reaches = find_own(spec, (observed or Observations()).counts, uneven), find_reaches(spec.ops)
    # those whose gradients are gathered over several steps of the mode
    accumulating = [name for name in find_accumulating(spec) if mode in reaches[name].modes]
    losses = (loss for name in accumulating for loss in find_set_losses(spec, name))
    wanted = dict.fromkeys(term for loss in losses for term in find_addends(spec, loss))
    wanted |= dict.fromkeys(name for name in own if name not in uneven) if is_split(spec, mode) else {}
    plain = frozenset(find_plain(spec, mode)) - uneven
    return {name: own[name] for name in wanted if name in own and name not in plain}


def find_own(
    spec: GraphSpec, observed: Mapping[str, bool], uneven: frozenset[str] = frozenset()
) -> Mapping[str, Counted]:
    """Return the losses that have a count of their own, or may have one: user losses that were not observed.

    ``observed``: user's loss -> whether it returns (sum, count); ``uneven``: built-in means that rows do not count.
    """
    found: dict[str, Counted] = dict.fromkeys(uneven, "elements")
    found |= {name: counted for name, op in spec.ops.items() if (counted := _count(name, op, observed))}
    return found


def find_uneven(spec: GraphSpec, elements: Mapping[str, Shape | None]) -> frozenset[str]:
    """Return the built-in means in windows whose number of elements differs between the rows of a batch, or may.

    ``elements``: loss -> the shape of what it is the mean of. Where it is fixed per row or for the batch, rows count.
    """
    losses = {loss for name in find_accumulating(spec) for loss in find_set_losses(spec, name)}
    terms = {term for loss in losses for term in find_addends(spec, loss)}
    uneven: set[str] = set()
    for name, shape in elements.items():
        size = None if shape is None else multiply(shape)
        is_fixed = isinstance(size, int) or (size is not None and is_multiple(size, "batch"))
        if not is_fixed and name in terms and not _count(name, spec.ops[name], {}):
            uneven.add(name)
    return frozenset(uneven)


def _count(name: str, op: Op, observed: Mapping[str, bool]) -> Counted:
    """Return how a loss counts by itself; sums and unreduced losses do not."""
    if not isinstance(op, LossOp) or op.reduction in ("sum", "none"):
        return ""
    if op.loss.is_builtin:
        return "" if op.args.get("ignore_index") is None else "kept"
    if name not in observed:
        return "assumed"
    return "returned" if observed[name] else ""


def is_split(spec: GraphSpec, mode: Mode) -> bool:
    """Return whether the steps of a mode are split into micro-batches."""
    return mode == "train" and spec.micro_batches > 1


def find_plain(spec: GraphSpec, mode: Mode) -> Iterator[str]:
    """Yield the terms that cannot be kept as a sum and a count: those differentiated with respect to a value.

    In micro-batches such a gradient is part of the whole batch's gradient, and so needs the counts of later parts.
    """
    if is_split(spec, mode):
        for op in spec.ops.values():
            if isinstance(op, GradientOp) and any(target not in spec.models for target in op.wrt):
                yield from find_addends(spec, op.gradient, find_whole(spec))
