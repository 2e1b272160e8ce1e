"""Dtypes: which are floating, and what a mix of them becomes.

The rules are PyTorch's: tensors of a higher kind (bool < integer < floating) win, among equals those with dimensions
win over those without, and both win over literals; literals count as int64 and float32.
"""

from __future__ import annotations

from collections.abc import Sequence
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
    """Return the dtype of an elementwise result; None where it depends on something unknown."""
    dtypes = [literal_dtype(each.value) if isinstance(each, Constant) else each.dtype for each in arguments]
    if None in dtypes:
        return None
    candidates = {_promote(dtypes, [_rank(each, unknown) for each in arguments]) for unknown in (0, 1)}
    return candidates.pop() if len(candidates) == 1 else None


def as_float(dtype: str | None) -> str | None:
    """Return the dtype of a function that is real by nature (exp, sqrt, division): float32 for integers."""
    return DEFAULT if is_not_floating(dtype) else dtype


def _rank(argument: Argument, unknown: int) -> int:
    """Return 2 for a tensor with dimensions, 1 for one without, 0 for a literal; 1 + ``unknown`` where it is open."""
    if isinstance(argument, Constant):
        return 0
    if argument.shape is None:
        return 1 + unknown
    return 2 if argument.shape else 1


def _promote(dtypes: Sequence[str | None], ranks: Sequence[int]) -> str | None:
    """Combine the dtypes of each rank, then the ranks from the highest to the lowest."""
    result: str | None = None
    for rank in (2, 1, 0):
        own = _join([dtype for dtype, each in zip(dtypes, ranks, strict=True) if each == rank and dtype is not None])
        if own is not None and (result is None or _kind(own) > _kind(result)):
            result = own
    return result


def _join(dtypes: Sequence[str]) -> str | None:
    """Return the smallest dtype that holds all of them, None for none."""
    if {"float16", "bfloat16"} <= set(dtypes):
        dtypes = [*dtypes, "float32"]
    return max(dtypes, key=_ORDER.index, default=None)


def _kind(dtype: str) -> int:
    """Return 0 for bool, 1 for integers, 2 for floating."""
    return 2 if dtype in FLOATING else int(dtype in INTEGER)
