"""Dtypes: which are floating, and what a mix of them becomes.

The rules are PyTorch's: tensors of a higher kind (bool < integer < floating) win, among equals those with dimensions
win over those without, and both win over literals; literals count as int64 and float32.
"""

from __future__ import annotations

from typing import TypeAlias

from compiler.ir.value import Constant
from compiler.types.dimension import TensorType

FLOATING = frozenset({"float16", "bfloat16", "float32", "float64"})
INTEGER = frozenset({"uint8", "int32", "int64"})
DEFAULT = "float32"
STEP_TYPES = frozenset({"float32", "float64"})
"""Types that become the type of the step, whichever is declared or was seen."""

Argument: TypeAlias = TensorType | Constant

_ORDER = ("bool", "uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64")


def is_floating(dtype: str | None) -> bool:
    """Return whether a dtype is known to be floating."""
    return dtype in FLOATING


def is_not_floating(dtype: str | None) -> bool:
    """Return whether a dtype is known to be none of the floating ones."""
    return dtype is not None and dtype not in FLOATING


def agree(found: str, expected: str) -> bool:
    """Return whether two dtypes are one in a step."""
    return found == expected or {found, expected} <= STEP_TYPES


def literal_dtype(value: bool | int | float) -> str:
    """Return the dtype a literal counts as."""
    match value:
        case bool():
            return "bool"
        case int():
            return "int64"
        case _:
            return DEFAULT


def promote(*arguments: Argument) -> str | None:
    """Return the dtype of an elementwise result; None where it depends on something unknown.

    The dtypes of each rank are combined, then the ranks from the highest to the lowest; what is of an unknown shape
    has dimensions, or none.
    """
    dtypes = [literal_dtype(each.value) if isinstance(each, Constant) else each.dtype for each in arguments]
    if None in dtypes:
        return None
    # A literal is of rank 0, a tensor without dimensions of rank 1, one with some of rank 2.
    ranks = [
        0 if isinstance(each, Constant) else None if each.shape is None else 2 if each.shape else 1
        for each in arguments
    ]
    candidates: set[str | None] = set()
    for unknown in (1, 2) if None in ranks else (1,):
        result: str | None = None
        for rank in (2, 1, 0):
            pairs = zip(dtypes, ranks, strict=True)
            own = [dtype for dtype, each in pairs if dtype is not None and (unknown if each is None else each) == rank]
            # The smallest dtype that holds all of them.
            own += ["float32"] if {"float16", "bfloat16"} <= set(own) else []
            widest = max(own, key=_ORDER.index, default=None)
            if widest is not None and (result is None or _kind(widest) > _kind(result)):
                result = widest
        candidates.add(result)
    return candidates.pop() if len(candidates) == 1 else None


def as_float(dtype: str | None) -> str | None:
    """Return the dtype of a function that is real by nature (exp, sqrt, division): float32 for integers."""
    return DEFAULT if is_not_floating(dtype) else dtype


def _kind(dtype: str) -> int:
    """Return 0 for bool, 1 for integers, 2 for floating."""
    return 2 if dtype in FLOATING else int(dtype in INTEGER)
