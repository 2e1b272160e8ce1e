"""Terms: the losses that add up to what an update minimizes, and how batches combine over a window."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Literal, TypeAlias

from compiler.facts.models import Observations
from compiler.ir.instructions import Counted
from compiler.ir.program import Mode
from compiler.ir.value import Shape
from compiler.types.calls import find_linear, is_linear
from compiler.types.dimension import is_multiple, multiply
from compiler.types.values import UNTYPED, Values, find_whole
from graphspec.analysis.modes import find_makers, find_reaches
from graphspec.analysis.remembering import once_per_spec
from graphspec.declare.graph import GraphSpec
from graphspec.declare.ops import CallOp, GradientOp, LossOp, Op, TransformOp, UpdateOp

Reduction: TypeAlias = Literal["mean", "sum"]
Whole: TypeAlias = Collection[str] | None
"""Values that do not depend on the batch, where it matters that they do not."""


@once_per_spec
def find_accumulating(spec: GraphSpec) -> Mapping[str, tuple[str, ...]]:
    """Return, by update whose window combines gradients by counts, the terms of all losses that it gathers from."""
    found: dict[str, tuple[str, ...]] = {}
    for name, op in spec.ops.items():
        if isinstance(op, UpdateOp) and op.accumulate is not None and op.window > 1 and op.accumulate.reduce == "mean":
            losses = find_set_losses(spec, name)
            found[name] = tuple(dict.fromkeys(term for loss in losses for term in find_terms(spec, loss)))
    return found


def find_gathered(spec: GraphSpec, mode: Mode) -> frozenset[str]:
    """Return the terms of what the updates of a mode gather over several steps."""
    reaches = find_reaches(spec)
    here = (terms for name, terms in find_accumulating(spec).items() if mode in reaches[name].modes)
    return frozenset(term for terms in here for term in terms)


def find_set_losses(spec: GraphSpec, update: str) -> tuple[str, ...]:
    """Return the losses whose gradient sets an update takes: its own, or those of the gradients it is given."""
    op = spec.ops[update]
    assert isinstance(op, UpdateOp)
    if op.loss is not None:
        return (op.loss,)
    return tuple(dict.fromkeys(find_given(spec, op).values()))


def find_given(spec: GraphSpec, update: UpdateOp) -> Mapping[str, str]:
    """Return the gradient ops whose sets an update is given, as they are or as others make them, each with its loss."""
    makers = find_makers(spec)
    found: dict[str, str] = {}
    seen, pending = set[str](), [*reversed(update.gradients or ())]
    while pending:
        value = pending.pop()
        name = makers.get(value, "")
        match spec.ops.get(name) if value not in seen else None:
            case GradientOp() as maker:
                found[name] = maker.gradient
            case TransformOp() | CallOp() as maker:
                pending.extend(reversed([reference.name for reference in maker.operands()]))
            case _:
                pass
        seen.add(value)
    return found


@once_per_spec
def find_reductions(spec: GraphSpec) -> Mapping[str, Mapping[str, Reduction]]:
    """Return, by op that takes a gradient, how it combines over processes, as each update says that is given it.

    Of a gradient that no update is given the op itself says it, as `parallel` does.
    """
    usual = "mean" if spec.parallel is None else spec.parallel.reduce
    found: dict[str, dict[str, Reduction]] = {}
    for name, op in spec.ops.items():
        if isinstance(op, UpdateOp):
            for taken in (name,) if op.loss is not None else find_given(spec, op):
                found.setdefault(taken, {})[name] = op.reduce or usual
    takes = (name for name, op in spec.ops.items() if isinstance(op, GradientOp) and name not in found)
    return {**found, **{name: {name: usual} for name in takes}}


@once_per_spec
def find_added(spec: GraphSpec) -> frozenset[str]:
    """Return the ops whose gradients are the sum of what each process has on its own rows."""
    if not spec.is_replicated:
        return frozenset()
    return frozenset(name for name, by in find_reductions(spec).items() if "sum" in by.values())


def find_addends(spec: GraphSpec, loss: str, whole: Whole = None, rows: Collection[str] = ()) -> tuple[str, ...]:
    """Return the values that are added up to a loss, each once: `add`, `sub` and constant factors keep them apart.

    ``whole``: so does every call that is linear in one value, the others being of these; ``rows``: but for calls that
    read one of these.
    """
    addends: dict[str, None] = {}
    seen, pending = set[str](), [loss]
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        op = spec.ops.get(value)
        parts = find_linear(op, whole) if isinstance(op, CallOp) and is_linear(op, whole) else ()
        if parts and not any(name in rows for name in parts):
            pending.extend(reversed(parts))
        else:
            addends[value] = None
    return tuple(addends)


def find_sums(spec: GraphSpec, ops: Collection[str], values: Values) -> frozenset[str]:
    """Return the calls that add up the losses of some updates and gradients, whose terms may be taken by themselves."""
    whole = find_whole(values)
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


def find_terms(spec: GraphSpec, value: str) -> tuple[str, ...]:
    """Return the values that are added up to one, each once; of a gradient set, the terms of its loss.

    `add`, `sub`, and constant factors keep terms apart.
    """
    makers = find_makers(spec)
    terms: dict[str, None] = {}
    seen, pending = set[str](), [value]
    while pending:
        each = pending.pop()
        if each in seen:
            continue
        seen.add(each)
        match spec.ops.get(makers.get(each, "")):
            case GradientOp() as op:
                pending.append(op.gradient)
            case CallOp() as op if is_linear(op):
                pending.extend(reversed([reference.name for reference in op.operands()]))
            case _:
                terms[each] = None
    return tuple(terms)


def are_added(terms: Collection[str], values: Values) -> bool:
    """Return whether the terms are added up over steps: some sum over a batch is, and terms that are all sums.

    A sum that does not depend on the batch, such as one over a parameter, is the same in every step, as a mean is.
    """
    known = [values.get(term, UNTYPED) for term in terms]
    sums = [each for each in known if each.is_summed]
    return bool(sums) and (len(sums) == len(known) or any(each.is_batched for each in sums))


def find_counted(
    spec: GraphSpec, mode: Mode, values: Values, observed: Observations | None, uneven: frozenset[str] = frozenset()
) -> Mapping[str, Counted]:
    """Return the losses whose sum and count are kept apart in a mode, and how each counts; see :func:`find_own`.

    Micro-batches are of one batch: there a row has as many elements in one as in another.
    """
    own, reaches = find_own(spec, (observed or Observations()).counts, uneven), find_reaches(spec)
    wanted: dict[str, None] = {}
    for name in find_accumulating(spec):
        if mode in reaches[name].modes:  # their gradients are gathered over several steps of the mode
            for loss in find_set_losses(spec, name):
                wanted |= dict.fromkeys(find_addends(spec, loss))
    if is_split(spec, mode):
        # what processes add up counts by rows until it is seen that it has a count of its own
        is_open = bool(find_added(spec))
        wanted |= dict.fromkeys(
            name for name, counted in own.items() if name not in uneven and not (is_open and counted == "assumed")
        )
    plain = frozenset(find_plain(spec, mode, values)) - uneven
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
    terms, uneven = set[str](), set[str]()
    for name in find_accumulating(spec):
        for loss in find_set_losses(spec, name):
            terms.update(find_addends(spec, loss))
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
    """Return whether the steps of a mode are split: into micro-batches, or between replicas."""
    return mode != "infer" if spec.is_replicated else mode == "train" and spec.micro_batches > 1


def find_plain(spec: GraphSpec, mode: Mode, values: Values) -> Iterator[str]:
    """Yield the terms that cannot be kept as a sum and a count: those differentiated with respect to a value.

    In micro-batches such a gradient is part of the whole batch's gradient, and so needs the counts of later parts.
    """
    if is_split(spec, mode):
        whole = find_whole(values)
        for op in spec.ops.values():
            if isinstance(op, GradientOp) and any(target not in spec.models for target in op.wrt):
                yield from find_addends(spec, op.gradient, whole)
