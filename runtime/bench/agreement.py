"""Agreement of variants: how far what they return in their first steps is from what the step returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.generic]
Outputs = Mapping[str, Array]
"""What a step returned, by name."""
ROUNDING = 1e-4
"""The relative difference that steps may come to in which float32 numbers are rounded in another order."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """The largest relative difference of an output: at which one, and in which step (from 1).

    A difference is relative to the largest number of the output. ``difference`` is None where no names are the same.
    """

    difference: float | None
    output: str = ""
    step: int = 0
    steps: int = 0
    """How many steps were compared."""

    @property
    def agrees(self) -> bool:
        """Return whether the outputs are the same up to rounding."""
        return self.difference is not None and self.difference <= ROUNDING

    def __str__(self) -> str:
        """Return it in a few words."""
        if self.difference is None:
            return "not compared"
        if not self.difference:
            return "equal"
        return f"{'equal to' if self.agrees else 'differs by'} {self.difference:.2g}"


def compare(steps: Sequence[Outputs], reference: Sequence[Outputs]) -> Agreement:
    """Return how far the outputs of some steps are from those of a reference, of the names that both have."""
    worst = Agreement(difference=None)
    for number, (found, expected) in enumerate(zip(steps, reference, strict=True), start=1):
        for name in (name for name in expected if name in found):
            difference = measure(found[name], expected[name])
            if worst.difference is None or difference > worst.difference:
                worst = Agreement(difference=difference, output=name, step=number, steps=len(reference))
    return worst


def measure(found: Array, expected: Array) -> float:
    """Return the largest difference relative to the largest number expected; infinite for other shapes, and for NaN.

    What is not finite on both sides alike does not differ.

    >>> measure(np.array([1.0, 2.02]), np.array([1.0, 2.0]))
    0.010000000000000009
    """
    if found.shape != expected.shape:
        return np.inf
    ours, theirs = found.astype(np.float64), expected.astype(np.float64)
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    if same.all():
        return 0.0
    if not (np.isfinite(ours[~same]).all() and np.isfinite(theirs[~same]).all()):
        return np.inf
    largest = np.abs(theirs[np.isfinite(theirs)]).max() or np.abs(ours[~same]).max()
    return float(np.abs(ours[~same] - theirs[~same]).max() / largest)
