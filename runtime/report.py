"""The report of a step: what its last step did, update by update."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateReport:
    """What one update did in a step: whether it fired, why or why not, and how far its optimizers are."""

    name: str
    fired: bool
    reason: str
    """In words: `every 5 steps`, `it starts at step 100`, `it follows 'critic', which did not fire`."""
    iterations: Mapping[str, int]
    """By optimizer: the updates it has applied so far, by this update or another."""
    learning_rates: Mapping[str, float]
    """By optimizer: the rate of its last update in this step; empty where this update did not fire."""
    skipped: bool = False
    """It was to take place in this step, and gradients that are not finite held it back: ``reason`` says whose."""
    nonfinite: str | None = None
    """The first parameter whose gradient is not finite: `net.0.weight`; None where all are, or nobody looked."""
    gradient_norm: float | None = None
    """The Euclidean norm of the gradients that it was given, of its whole window, without the loss scale and before
    they are clipped; None where it did not come to that, or the step was built without `norms`."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StepReport:
    """What the last step did: its number in its mode (from 1), the mode, and the updates and averages that fired."""

    step: int
    mode: str
    fired: tuple[str, ...]
    held: tuple[str, ...] = ()
    """The updates and averages that were to take place, and were held back."""
    scale_before: float | None = None
    """The loss scale of the step; None without one."""
    scale_after: float | None = None
    """The loss scale that the step left."""
    dataset: str | None = None
    """The data set of its batch, where the step was told one."""
    updates: Mapping[str, UpdateReport] = field(default_factory=dict[str, UpdateReport], compare=False)
    """Every update of the spec by name, in the order of the spec; not shown, for it is long."""

    def __repr__(self) -> str:
        """Return what there is to tell, updates left out, for they are long."""
        always = {"step": self.step, "mode": self.mode, "fired": self.fired}
        scales = {"scale_before": self.scale_before, "scale_after": self.scale_after}
        told = {"held": self.held or None, **scales, "dataset": self.dataset}
        shown = {**always, **{name: each for name, each in told.items() if each is not None}}
        return f"StepReport({', '.join(f'{name}={each!r}' for name, each in shown.items())})"
