"""Overflow: what a step found out about its gradients, and what it held back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """The verdicts of the last step of a mode: by update whether its gradients were finite, by op what took place.

    ``places``: by update with other gradients, the place of the first of them in its gradient sets.
    """

    given: Mapping[str, bool] = field(default_factory=dict[str, bool])
    committed: Mapping[str, bool] = field(default_factory=dict[str, bool])
    places: Mapping[str, int] = field(default_factory=dict[str, int])
    scale_before: float | None = None
    """The loss scale of the step; None where there is none."""
    scale_after: float | None = None

    @property
    def held(self) -> frozenset[str]:
        """Return the ops that did not take place."""
        return frozenset(op for op, took_place in self.committed.items() if not took_place)


NOTHING = Overflow()
"""What there is to tell of a step without verdicts."""
