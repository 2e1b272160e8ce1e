"""The loss scale: losses are differentiated multiplied by it, gradients divided by it again."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import torch

from runtime.backends.torch.library.kernels import foreach_divide

FLOAT32_MAX = 3.4028234663852886e38


class LossScale:
    """A factor that keeps small gradients from vanishing where models compute in float16.

    It grows after ``growth_steps`` steps in a row with finite gradients, and shrinks after a step with others; a fixed
    one does neither. ``before`` is what it was in the last step, ``skips`` how many steps in a row were not finite.
    """

    def __init__(
        self,
        initial: float,
        *,
        growth_steps: int = 2000,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        min_scale: float = 1.0,
        is_fixed: bool = False,
        most_skips: int | None = None,
    ) -> None:
        self.initial = self.scale = self.before = in_float32(initial)
        self.growth_steps, self.growth_factor, self.backoff_factor = growth_steps, growth_factor, backoff_factor
        self.min_scale, self.is_fixed, self.most_skips = min_scale, is_fixed, most_skips
        self.good = self.skips = 0  # steps in a row with finite gradients, and without

    def seed(self, loss: torch.Tensor) -> torch.Tensor:
        """Return what the gradient of a loss starts with: the scale in place of 1."""
        return torch.full_like(loss, self.scale, requires_grad=False)

    def scaled(self, seeds: Any) -> Any:
        """Return given seeds times the scale."""
        if isinstance(seeds, (tuple, list)):
            return tuple(each * self.scale for each in seeds)
        return seeds * self.scale

    def unscale(self, gradients: Sequence[torch.Tensor | None]) -> tuple[Any, ...]:
        """Return gradients divided by the scale, as new tensors; what is absent stays absent."""
        present = [each for each in gradients if each is not None]
        if len(present) < len(gradients):
            return tuple(None if each is None else each / self.scale for each in gradients)
        return foreach_divide(present, self.scale)

    def update(self, finite: bool) -> None:
        """Let the scale follow a step whose gradients were all finite, or not."""
        self.before = self.scale
        self.skips = 0 if finite else self.skips + 1
        if self.is_fixed:
            return
        if not finite:
            self.scale, self.good = max(in_float32(self.scale * self.backoff_factor), self.min_scale), 0
            return
        self.good += 1
        if self.good >= self.growth_steps:
            grown = self.scale * self.growth_factor
            self.scale, self.good = in_float32(grown) if grown <= FLOAT32_MAX else self.scale, 0

    def check(self) -> None:
        """Raise NotFinite where too many steps in a row had gradients that are not finite."""
        if self.most_skips is not None and self.skips > self.most_skips:
            raise NotFinite("GS282", "", f"{self.skips} steps in a row had gradients that are not finite")


class NotFinite(ArithmeticError):
    """Gradients that are not finite where that ends the run."""

    def __init__(self, code: str, op: str, message: str) -> None:
        super().__init__(message)
        self.code, self.op, self.message = code, op, message
        self.notes: tuple[str, ...] = ()
        self.remedy = "`build(debug=True)`, or `run --debug nan`, finds the first value that is not finite"


def in_float32(number: float) -> float:
    """Return a number as float32 holds it: every backend has the same scale."""
    return struct.unpack("f", struct.pack("f", number))[0]
