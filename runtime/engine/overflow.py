"""Overflow: what a step found about its gradients, and the writes that it skipped."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Overflow(Struct, frozen=True, kw_only=True):
    """The verdicts of the last step of a mode: by update whether its gradients were finite, by op whether it ran.

    ``places``: for every update with gradients that are not finite, the place of the first in its gradient sets.
    """

    given: Mapping[str, bool] = {}
    committed: Mapping[str, bool] = {}
    places: Mapping[str, int] = {}
    scale_before: float | None = None
    """The loss scale of the step; None where there is none."""
    scale_after: float | None = None

    @property
    def held(self) -> frozenset[str]:
        """Return the ops that were skipped."""
        return frozenset(op for op, took_place in self.committed.items() if not took_place)


NOTHING = Overflow()
"""The overflow of a step without verdicts."""
