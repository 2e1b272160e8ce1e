"""The kind of a value under micro-batches: whether it is there once, or how what its parts are makes it up."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum


class Kind(Enum):
    """How a value comes of its micro-batches."""

    WHOLE = "whole"
    """It does not depend on the batch."""
    ROWS = "rows"
    """Its parts are joined along the axis of the batch."""
    MEAN = "mean"
    """The mean of its parts, each counted by its rows."""
    SUM = "sum"
    """The sum of its parts."""
    RATIO = "ratio"
    """What its own operands make of it once these are whole: a sum by its count, and what is linear in such means."""
    MIXED = "mixed"
    """A sum of terms, some of which are means, some sums."""


def combine(kinds: Collection[Kind]) -> Kind:
    """Return the kind of a sum of values without rows; what does not depend on the batch counts as a mean of itself."""
    found = set(kinds)
    if Kind.RATIO in found:
        return Kind.RATIO
    if found <= {Kind.WHOLE, Kind.MEAN}:
        return Kind.MEAN if Kind.MEAN in found else Kind.WHOLE
    return Kind.SUM if found == {Kind.SUM} else Kind.MIXED
