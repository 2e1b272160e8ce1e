"""The placement of a built-in call's result, from those of its operands; and which calls couple the samples."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from enum import Enum

from msgspec import Struct

from compiler.ir.value import Plain, Setting, Shape
from compiler.types.dimension import TensorType
from graphspec.declare.equations import Equation, read_equation
from graphspec.declare.library import CALLS as LIBRARY
from graphspec.declare.ops import CallOp
from graphspec.declare.options import BATCH
from graphspec.declare.subscripts import WHOLE, Slice, Subscript


class Placement(Enum):
    """How the value of a batch is computed from those of its micro-batches."""

    REPLICATED = "whole"
    """It does not depend on the batch."""
    SHARDED = "rows"
    """Its parts are joined along the axis of the batch."""
    PARTIAL_MEAN = "mean"
    """The mean of its parts, weighted by rows."""
    PARTIAL_SUM = "sum"
    """The sum of its parts."""
    RATIO = "ratio"
    """Computed from its whole operands: a sum divided by its count, and what is linear in such means."""
    MIXED = "mixed"
    """A sum of terms, some of which are means, some sums."""


def combine(placements: Collection[Placement]) -> Placement:
    """Return the placement of a sum of values without rows; one that does not depend on the batch counts as a mean."""
    found = set(placements)
    if Placement.RATIO in found:
        return Placement.RATIO
    if found <= {Placement.REPLICATED, Placement.PARTIAL_MEAN}:
        return Placement.PARTIAL_MEAN if Placement.PARTIAL_MEAN in found else Placement.REPLICATED
    return Placement.PARTIAL_SUM if found == {Placement.PARTIAL_SUM} else Placement.MIXED


ADDITIVE = frozenset({"add", "sub"})
SCALING = frozenset({"mul", "div", "neg"})
LINEAR = frozenset(
    (
        "neg", "mean", "sum", "cumsum", "reshape", "expand", "permute", "slice", "split", "subscript", "stop", "gather",
        "roll", "interpolate", "either",
    )
)  # fmt: skip
"""Calls of one value that are the same for a sum as for its terms."""
COUPLING = frozenset({"max", "min", "norm", "logsumexp"})
"""Reductions whose result for the batch is neither the mean nor the sum of the results of its parts."""
ALONG = COUPLING | frozenset(
    (
        "softmax", "log_softmax", "normalize", "argmax", "concat", "stack", "split", "split_rows", "slice", "gather",
        "cumsum", "sort", "topk", "roll", "pad", "interpolate",
    )
)  # fmt: skip
"""Calls that couple the samples when they run along the batch axis."""
SUMMING = frozenset({"sum", "matmul", "einsum"})
"""Calls that add up over rows where they leave none."""
DEFAULT_AXES: Mapping[str, int] = {"split_rows": 0} | {
    name: option.default
    for name, signature in LIBRARY.items()
    for option in signature.options
    if option.name == "axis" and isinstance(option.default, int)
}
"""The axis along which a call works where it says none; one that has no option for it has the batch first."""


class Called(Struct, frozen=True, kw_only=True):
    """A built-in call: its operands' placements, types and axes of the batch, and what is known of its result."""

    name: str
    placements: Sequence[Placement]
    types: Sequence[TensorType]
    axes: Sequence[int]
    options: Mapping[str, Setting]
    result: TensorType

    def place(self) -> Placement:
        """Return the placement of the results: by what is reduced of rows, by linearity of numbers for the batch.

        Linear calls keep the terms of a sum separate; any other makes a new number for each micro-batch.
        """
        batched = [each for each in self.placements if each is not Placement.REPLICATED]
        if Placement.SHARDED in batched:
            reduced = Placement.PARTIAL_SUM if self.name in SUMMING else Placement.PARTIAL_MEAN
            return Placement.SHARDED if self._keeps_rows() else reduced
        if not batched:
            return Placement.REPLICATED
        if not is_linear_call(self.name, self.placements):
            return Placement.PARTIAL_MEAN
        return combine(self.placements) if self.name in ("add", "sub") else batched[0]

    def is_coupling(self) -> bool:
        """Return whether the results of the parts differ from the parts of the whole batch's result."""
        batched = [each for each in self.placements if each is not Placement.REPLICATED]
        if Placement.SHARDED not in batched:
            return bool(batched) and not is_linear_call(self.name, self.placements)
        if any(each is not Placement.SHARDED for each in batched):
            return True
        if self.name == "reshape":  # the first axis must stay the batch axis, as far as shapes show
            shape = self.options.get("shape")
            first = shape[0] if isinstance(shape, tuple) else shape
            known = self.result.shape
            return any(self.axes) or not (first in (-1, BATCH) if known is None else has_batch(known[:1]))
        if self.name == "expand":  # the axis of the batch keeps its size
            sizes = self.options.get("shape")
            sizes = sizes if isinstance(sizes, tuple) else (sizes,)
            return any(not axis < len(sizes) or sizes[axis] not in (-1, BATCH) for axis in self.axes)
        if self.name == "matmul":
            if not self._keeps_rows():
                return False
            # it sums over samples, or pairs them with each other
            summed = (
                known.shape is not None and axis - len(known.shape) == (place if len(known.shape) > 1 else -1)
                for known, kind, axis, place in zip(self.types, self.placements, self.axes, (-1, -2), strict=False)
                if kind is Placement.SHARDED
            )
            return any(summed) or sum(has_batch((size,)) for size in self.result.shape or ()) > 1
        if self.name == "outer":
            return len(batched) > 1
        if self.name == "einsum":  # rows that have one letter stay with each other, or are summed
            rows = zip(self._equation().factors, self.axes, self.placements, strict=True)
            return len({axes[axis] for axes, axis, kind in rows if kind is Placement.SHARDED}) > 1
        if self.name == "subscript":  # the axis of the batch is taken whole, and it is known where it is then
            at = self._subscript()
            return at.at(self.axes[0]) != WHOLE or (self.result.shape is None and None in at.places)
        if self.name in COUPLING and not self._keeps_rows():
            return True
        if self.name not in ALONG:
            return False
        rank = next((len(each.shape) for each in self.types if each.shape is not None), None)
        along = next(
            (axis for axis, each in zip(self.axes, self.placements, strict=False) if each is Placement.SHARDED), 0
        )
        return any(
            axis == along or (rank is not None and axis + rank + (self.name == "stack") == along)
            for axis in self._worked_axes()
        )

    def _worked_axes(self) -> tuple[int, ...]:
        """Return the axes that the call works along, some counted from the end."""
        match self.name:
            case "pad":
                added = _axes(self.options["pad"])
                return tuple(-1 - at // 2 for at, count in enumerate(added) if count)
            case "interpolate":
                return (-2, -1)
            case _:
                return _axes(self.options.get("axis", DEFAULT_AXES.get(self.name, 1)))

    def _keeps_rows(self) -> bool:
        """Return whether the result has a batch axis: by its known shape, or by the call's axes."""
        if self.result.shape is not None:
            return has_batch(self.result.shape)
        if self.name == "subscript":
            return isinstance(self._subscript().at(self.axes[0]), Slice)
        if self.name == "einsum":
            return any(axes[:1] in self._equation().result for axes in self._equation().factors)
        over = self.name in ("mean", "sum", *COUPLING)
        return not (over and (self.options.get("axis") is None or 0 in _axes(self.options.get("axis"))))

    def _equation(self) -> Equation:
        """Return the equation of an einsum."""
        return read_equation(self.options["equation"])

    def _subscript(self) -> Subscript:
        """Return what stands between the brackets of a subscript."""
        at = self.options["at"]
        assert isinstance(at, Subscript)
        return at


def is_linear_call(name: str, placements: Sequence[Placement]) -> bool:
    """Return whether a built-in call of a sum is the sum of the calls of its terms, given its operands' placements."""
    match name:
        case "add" | "sub":
            return True
        case "mul" | "outer" | "einsum":
            return sum(each is not Placement.REPLICATED for each in placements) == 1
        case "div":
            return all(each is Placement.REPLICATED for each in placements[1:])
        case _:
            return name in LINEAR and all(each is Placement.REPLICATED for each in placements[1:])


def is_linear(op: CallOp, whole: Collection[str] | None = None) -> bool:
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


def find_linear(op: CallOp, whole: Collection[str] | None = None) -> tuple[str, ...]:
    """Return the values in which a call is linear: the terms of a sum, or the one that is multiplied."""
    names = tuple(reference.name for reference in op.operands())
    if whole is None or op.call.name("torch") in ADDITIVE:
        return names
    return tuple(name for name in names if name not in whole)


def has_batch(shape: Shape) -> bool:
    """Return whether some size of a shape depends on that of the batch."""
    return any(isinstance(size, str) and BATCH in re.findall(r"\w+", size) for size in shape)


def _axes(option: Setting | Plain) -> tuple[int, ...]:
    """Return the axes that an option names."""
    if isinstance(option, tuple):
        return tuple(axis for axis in option if isinstance(axis, int))
    return (option,) if isinstance(option, int) else ()
