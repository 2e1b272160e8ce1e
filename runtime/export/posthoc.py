"""Averages of any width after training: the profile that is wanted, as a combination of those that were stored.

Karras et al. 2024, "Analyzing and Improving the Training Dynamics of Diffusion Models", section 3 and algorithms 2, 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_CUTOFF = 1e-12
"""Singular values of the normalized Gram matrix below this are rounding."""
_GRID = 20_000
"""At about how many times profiles are compared: among more writes, a single one hardly counts."""


@dataclass(frozen=True, slots=True)
class Profile:
    """How much the weights at a time t in (0, length] count in a power average: (gamma + 1) t^gamma / length^(gamma+1).

    ``length`` is the number of writes that the average has counted; its share of one is this integral over (i-1, i]. An
    average of every k-th write gives each the share of those that it passed over, too.
    """

    length: int
    gamma: float
    every: int = 1

    @property
    def ends(self) -> np.ndarray:
        """Return 0, and the writes that were taken."""
        return np.append(0, np.arange(self.length, 0, -self.every)[::-1])

    def accumulate(self, times: np.ndarray) -> np.ndarray:
        """Return the share of all writes up to some times, those that were passed over spread evenly."""
        ends = self.ends
        return np.interp(times, ends, (ends / self.length) ** (self.gamma + 1))


@dataclass(frozen=True, slots=True)
class Fit:
    """A combination of stored averages."""

    weights: tuple[float, ...]
    """The weight of each; they sum to 1."""
    error: float
    """The norm of the difference to the wanted profile, as a share of the norm of that profile (L2 over writes)."""

    @property
    def amplification(self) -> float:
        """Return by how much the rounding of the stored averages may grow: the sum of the absolute weights."""
        return math.fsum(map(abs, self.weights))


def fit_profile(stored: Sequence[Profile], wanted: Profile) -> Fit:
    """Return the least squares fit of a profile by stored ones, with weights that sum to 1.

    It is that of the integrals, as published; its error is that of the shares that writes have. The inner product of
    two profiles with S <= T is (a+1)(b+1) (S/T)^b / ((a+b+1) T), b the gamma of the longer one.
    """
    every = (*stored, wanted)
    length, gamma = (np.array([getattr(each, name) for each in every], float) for name in ("length", "gamma"))
    one, other = np.meshgrid(np.arange(len(every)), np.arange(len(every)), indexing="ij")
    shorter = np.minimum(length[one], length[other])
    longer = np.maximum(length[one], length[other])
    power = np.where(length[one] < length[other], gamma[other], gamma[one])
    products = (gamma[one] + 1) * (gamma[other] + 1) * (shorter / longer) ** power
    products /= (gamma[one] + gamma[other] + 1) * longer
    norms = np.sqrt(np.diag(products))
    scaled = products / np.outer(norms, norms)  # the norm of every profile is 1
    found = np.linalg.lstsq(scaled[:-1, :-1], scaled[:-1, -1], rcond=_CUTOFF)[0]
    weights = found / norms[:-1]
    weights /= weights.sum()
    # How far the shares of writes in the combination are from those that are wanted.
    by_length = sorted(every, key=lambda each: each.length)
    longest = {(each.every, each.length % each.every): each for each in by_length}  # others end at writes of these
    times = np.unique(np.concatenate([each.ends for each in longest.values()]))
    times = np.unique(np.append(times[:: 1 + len(times) // _GRID], times[-1]))
    expected = np.diff(wanted.accumulate(times))
    given = sum(weight * np.diff(each.accumulate(times)) for each, weight in zip(stored, weights, strict=True))
    width = np.sqrt(np.diff(times))
    error = float(np.linalg.norm((given - expected) / width) / np.linalg.norm(expected / width))
    return Fit(tuple(map(float, weights)), error)
