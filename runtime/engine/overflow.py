"""Overflow: what a step found about its gradients, and the writes that it skipped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """The verdicts of the last step of a mode: by update whether its gradients were finite, by op whether it ran.

    ``places``: for every update with gradients that are not finite, the place of the first in its gradient sets.
    """

    given: Mapping[str, bool] = field(default_factory=dict[str, bool])
    committed: Mapping[str, bool] = field(default_factory=dict[str, bool])
    places: Mapping[str, int] = field(default_factory=dict[str, int])
    scale_before: float | None = None
    """The loss scale of the step; None where there is none."""
    scale_after: float | None = None

    @property
    def held(self) -> frozenset[str]:
        """Return the ops that were skipped."""
        return frozenset(op for op, took_place in self.committed.items() if not took_place)


NOTHING = Overflow()
"""The overflow of a step without verdicts."""
