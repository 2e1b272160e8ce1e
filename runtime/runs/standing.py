"""The best value of a figure so far, and how long ago that was: what ``best`` and ``stop`` go by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from runtime.state import Plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The best value a figure has had; ``waited`` judgements have passed since without a better one."""

    metric: str
    mode: Literal["min", "max"]
    min_delta: float = 0.0
    value: float | None = None
    step: int | None = None
    waited: int = 0

    def judge(self, step: int, figures: Mapping[str, float]) -> Standing:
        """Return the standing after the figures of a step; figures without the metric change nothing."""
        if self.metric not in figures:
            return self
        found = figures[self.metric]
        if self._is_better(found):
            return replace(self, value=found, step=step, waited=0)
        return replace(self, waited=self.waited + 1)

    def _is_better(self, found: float) -> bool:
        """Tell whether a value beats the best by more than ``min_delta``; one that is not a number never does."""
        if self.value is None:
            return found == found
        gain = found - self.value if self.mode == "max" else self.value - found
        return gain > self.min_delta

    def to_plain(self) -> dict[str, Plain]:
        """Return what a checkpoint keeps of it; infinities as text, which JSON has no number for."""
        value = None if self.value is None else self.value.hex()
        return {"metric": self.metric, "mode": self.mode, "value": value, "step": self.step, "waited": self.waited}

    def restored(self, kept: Mapping[str, Plain]) -> Standing:
        """Return the standing that a checkpoint kept; that of another metric or goal counts for nothing."""
        if (kept.get("metric"), kept.get("mode")) != (self.metric, self.mode):
            return self
        match kept:
            case {"value": str() as value, "step": int() as step, "waited": int() as waited}:
                return replace(self, value=float.fromhex(value), step=step, waited=waited)
            case {"waited": int() as waited}:
                return replace(self, waited=waited)
            case _:
                return self
