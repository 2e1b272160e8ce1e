"""The kind of a built-in call's result, from the kinds of its operands; and which calls couple the samples."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from compiler.ir.value import Plain, Setting, Shape
from compiler.types.dimension import TensorType
from graphspec.declare.options import BATCH


class Kind(Enum):
    """How the value of a batch is computed from those of its micro-batches."""

    WHOLE = "whole"
    """It does not depend on the batch."""
    ROWS = "rows"
    """Its parts are joined along the axis of the batch."""
    MEAN = "mean"
    """The mean of its parts, weighted by rows."""
    SUM = "sum"
    """The sum of its parts."""
    RATIO = "ratio"
    """Computed from its whole operands: a sum divided by its count, and what is linear in such means."""
    MIXED = "mixed"
    """A sum of terms, some of which are means, some sums."""


def combine(kinds: Collection[Kind]) -> Kind:
    """Return the kind of a sum of values without rows; a value that does not depend on the batch counts as a mean."""
    found = set(kinds)
    if Kind.RATIO in found:
        return Kind.RATIO
    if found <= {Kind.WHOLE, Kind.MEAN}:
        return Kind.MEAN if Kind.MEAN in found else Kind.WHOLE
    return Kind.SUM if found == {Kind.SUM} else Kind.MIXED


LINEAR = frozenset({"neg", "mean", "sum", "reshape", "permute", "slice", "split", "stop", "gather"})
"""Calls of one value that are the same for a sum as for its terms."""
COUPLING = frozenset({"max", "min", "norm"})
"""Reductions whose result for the batch is neither the mean nor the sum of the results of its parts."""
ALONG = frozenset(
    {"softmax", "normalize", "argmax", "concat", "stack", "split", "slice", "gather", "max", "min", "norm"}
)
"""Calls that couple the samples when they run along the batch axis."""
DEFAULT_AXES: Mapping[str, int] = {"stack": 0, "softmax": -1, "normalize": -1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A built-in call: its operands' kinds, types and axes of the batch, and what is known of its result."""

    name: str
    kinds: Sequence[Kind]
    types: Sequence[TensorType]
    axes: Sequence[int]
    options: Mapping[str, Setting]
    result: TensorType

    def find_kind(self) -> Kind:
        """Return the kind of the results: of rows, by whether they are reduced; of numbers for the batch, by linearity.

        Linear calls keep the terms of a sum separate; any other makes a new number for each micro-batch.
        """
        batched = [kind for kind in self.kinds if kind is not Kind.WHOLE]
        if Kind.ROWS in batched:
            reduced = Kind.SUM if self.name in ("sum", "matmul") else Kind.MEAN
            return Kind.ROWS if self._keeps_rows() else reduced
        if not batched:
            return Kind.WHOLE
        if not is_linear_call(self.name, self.kinds):
            return Kind.MEAN
        return combine(self.kinds) if self.name in ("add", "sub") else batched[0]

    def is_coupling(self) -> bool:
        """Return whether the results of the parts differ from the parts of the whole batch's result."""
        batched = [kind for kind in self.kinds if kind is not Kind.WHOLE]
        if Kind.ROWS not in batched:
            return bool(batched) and not is_linear_call(self.name, self.kinds)
        if any(kind is not Kind.ROWS for kind in batched):
            return True
        if self.name == "reshape":  # the first axis must stay the batch axis, as far as shapes show
            shape = self.options.get("shape")
            first = shape[0] if isinstance(shape, tuple) else shape
            known = self.result.shape
            return any(self.axes) or not (first in (-1, BATCH) if known is None else has_batch(known[:1]))
        if self.name == "matmul":
            if not self._keeps_rows():
                return False
            # it sums over samples, or pairs them with each other
            summed = (
                known.shape is not None and axis - len(known.shape) == (place if len(known.shape) > 1 else -1)
                for known, kind, axis, place in zip(self.types, self.kinds, self.axes, (-1, -2), strict=False)
                if kind is Kind.ROWS
            )
            return any(summed) or sum(has_batch((size,)) for size in self.result.shape or ()) > 1
        if self.name in COUPLING and not self._keeps_rows():
            return True
        if self.name not in ALONG:
            return False
        rank = next((len(each.shape) for each in self.types if each.shape is not None), None)
        along = next((axis for axis, kind in zip(self.axes, self.kinds, strict=False) if kind is Kind.ROWS), 0)
        return any(
            axis == along or (rank is not None and axis + rank + (self.name == "stack") == along)
            for axis in _axes(self.options.get("axis", DEFAULT_AXES.get(self.name, 1)))
        )

    def _keeps_rows(self) -> bool:
        """Return whether the result has a batch axis: by its known shape, or by the call's axes."""
        if self.result.shape is not None:
            return has_batch(self.result.shape)
        over = self.name in ("mean", "sum", *COUPLING)
        return not (over and (self.options.get("axis") is None or 0 in _axes(self.options.get("axis"))))


def is_linear_call(name: str, kinds: Sequence[Kind]) -> bool:
    """Return whether a built-in call of a sum is the sum of the calls of its terms, given its operands' kinds."""
    match name:
        case "add" | "sub":
            return True
        case "mul":
            return sum(kind is not Kind.WHOLE for kind in kinds) == 1
        case "div":
            return all(kind is Kind.WHOLE for kind in kinds[1:])
        case _:
            return name in LINEAR and all(kind is Kind.WHOLE for kind in kinds[1:])


def has_batch(shape: Shape) -> bool:
    """Return whether some size of a shape depends on that of the batch."""
    return any(isinstance(size, str) and BATCH in re.findall(r"\w+", size) for size in shape)


def _axes(option: Setting | Plain) -> tuple[int, ...]:
    """Return the axes that an option names."""
    if isinstance(option, tuple):
        return tuple(axis for axis in option if isinstance(axis, int))
    return (option,) if isinstance(option, int) else ()
