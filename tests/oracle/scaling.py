"""The loss scale: what it is after every step. Numbers are those without it, as far as all are finite."""

from __future__ import annotations

import numpy as np

from graphspec.declare.graph import GraphSpec


class LossScale:
    """A scale that grows after so many finite steps in a row, and shrinks after one that is not; held in float32."""

    def __init__(self, spec: GraphSpec) -> None:
        self.declared = spec.loss_scale
        self.now = np.float32(self.declared.initial if self.declared is not None else 1.0)
        self.good = 0

    def follow(self, *, finite: bool) -> None:
        """Let the scale follow a step in which gradients were taken."""
        rule = self.declared
        if rule is None or rule.kind == "fixed":
            return
        if not finite:
            self.now, self.good = max(self._times(rule.backoff_factor), np.float32(rule.min_scale)), 0
        elif self.good + 1 < rule.growth_steps:
            self.good += 1
        else:
            grown = self._times(rule.growth_factor)
            self.now, self.good = (grown if np.isfinite(grown) else self.now), 0

    def _times(self, factor: float) -> np.float32:
        with np.errstate(over="ignore"):
            return np.float32(float(self.now) * factor)
