"""Counting: losses that bring a count of their own, and those of them whose sum and count are kept apart in a mode.

A mean is a sum by a count. Over several steps or micro-batches the sums are added up, and so are the counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from compiler.gathering import find_addends, find_gathering, find_set_losses, find_whole
from compiler.instructions import Counted
from compiler.observations import Observations
from compiler.operands import Shape
from compiler.program import Mode
from compiler.shapes.dimension import is_multiple, multiply
from graphspec.graph import GraphSpec
from graphspec.modes import Reach, find_reaches
from graphspec.ops import GradientOp, LossOp, Op


def find_counted(
    spec: GraphSpec, mode: Mode, observed: Observations | None = None, uneven: frozenset[str] = frozenset()
) -> Mapping[str, Counted]:
    """Return the losses whose sum and count are kept apart in a mode, and how each counts; see :func:`find_own`.

    Micro-batches are of one batch: there a row has as many elements in one as in another.
    """
    own, reaches = find_own(spec, (observed or Observations()).counts, uneven), find_reaches(spec.ops)
    wanted = dict.fromkeys(term for loss in _find_losses(spec, mode, reaches) for term in find_addends(spec, loss))
    wanted |= dict.fromkeys(name for name in own if name not in uneven) if is_parted(spec, mode) else {}
    plain = frozenset(find_plain(spec, mode)) - uneven
    return {name: own[name] for name in wanted if name in own and name not in plain}


def find_own(
    spec: GraphSpec, observed: Mapping[str, bool], uneven: frozenset[str] = frozenset()
) -> Mapping[str, Counted]:
    """Return the losses that bring a count of their own, or may: those of users of which nothing was observed.

    ``observed``: user's loss -> whether it returns (sum, count); ``uneven``: built-in means that rows do not count.
    """
    found: dict[str, Counted] = dict.fromkeys(uneven, "elements")
    found |= {name: counted for name, op in spec.ops.items() if (counted := _count(name, op, observed))}
    return found


def find_uneven(spec: GraphSpec, elements: Mapping[str, Shape | None]) -> frozenset[str]:
    """Return the built-in means in windows whose elements are not so many in every row of a batch, or may not be.

    ``elements``: loss -> the shape of what it is the mean of. Where one row is like another, rows count.
    """
    losses = {loss for name in find_gathering(spec) for loss in find_set_losses(spec, name)}
    terms = {term for loss in losses for term in find_addends(spec, loss)}
    plain = (name for name in elements if name in terms and not _count(name, spec.ops[name], {}))
    return frozenset(name for name in plain if not _is_by_rows(elements[name]))


def _is_by_rows(shape: Shape | None) -> bool:
    """Return whether a shape surely has a fixed number of elements, for every row of a batch or for all of it."""
    size = None if shape is None else multiply(shape)
    return isinstance(size, int) or (size is not None and is_multiple(size, "batch"))


def _count(name: str, op: Op, observed: Mapping[str, bool]) -> Counted:
    """Return how an op counts by itself; sums and losses of single elements do not."""
    if not isinstance(op, LossOp) or op.reduction in ("sum", "none"):
        return ""
    if op.loss.is_builtin:
        return "" if op.args.get("ignore_index") is None else "kept"
    if name not in observed:
        return "assumed"
    return "returned" if observed[name] else ""


def is_parted(spec: GraphSpec, mode: Mode) -> bool:
    """Return whether the steps of a mode are split into micro-batches."""
    return mode == "train" and spec.micro_batches > 1


def find_plain(spec: GraphSpec, mode: Mode) -> Iterator[str]:
    """Yield the terms that cannot be kept as a sum and a count: those that a gradient by a value splits up.

    In micro-batches it is part of the whole batch's gradient, and so needs the counts of those that come later.
    """
    if is_parted(spec, mode):
        for op in spec.ops.values():
            if isinstance(op, GradientOp) and any(target not in spec.models for target in op.wrt):
                yield from find_addends(spec, op.gradient, find_whole(spec))


def _find_losses(spec: GraphSpec, mode: Mode, reaches: Mapping[str, Reach]) -> Iterator[str]:
    """Yield the losses whose gradients are gathered over several steps of a mode with regard to counts."""
    for name in find_gathering(spec):
        if mode in reaches[name].modes:
            yield from find_set_losses(spec, name)
