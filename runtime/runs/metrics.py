"""What a run measured: one row of numbers for each step that is logged."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The outputs of one step, as numbers, and the seconds since training began."""

    step: int
    seconds: float
    values: Mapping[str, float]


def scalars(arrays: Mapping[str, npt.NDArray[np.generic]]) -> Mapping[str, float]:
    """Return the arrays that hold one number, as numbers."""
    return {name: float(array.reshape(()).item()) for name, array in arrays.items() if array.size == 1}


def read_latest(latest: Mapping[str, object], read: Callable[[object], npt.NDArray[np.generic]]) -> Mapping[str, float]:
    """Return the latest values of one number, in their order; those that a checkpoint brought are numbers already."""
    found: dict[str, float] = {}
    for name, value in latest.items():
        found.update({name: value} if isinstance(value, float) else scalars({name: read(value)}))
    return found


def not_finite(row: Row) -> tuple[str, ...]:
    """Return the names of the values that are nan or infinite."""
    return tuple(name for name, value in row.values.items() if not math.isfinite(value))


def show(value: float) -> str:
    """Return a number in about six characters: four digits that count, without a tail of zeros."""
    if not math.isfinite(value):
        return str(value)
    return f"{value:.4f}" if 1e-3 <= abs(value) < 1e3 or value == 0 else f"{value:.4g}"
