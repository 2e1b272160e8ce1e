"""Penalties: terms over parameters, by the slopes that they add to gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import torch

from runtime.backends.torch.library.kernels import TensorList, foreach_shift, foreach_signs
from runtime.backends.torch.library.optimizers import require_gradients

Factor: TypeAlias = float | Callable[[], float | torch.Tensor]
"""A number, or what reads it in every step: a tensor, where the step is captured."""


class Penalty:
    """l1 times the absolute values of some parameters, l2 times their squares, or a function of each, summed.

    ``places`` are those of their gradients in the set to which the slopes are added. ``l1`` and ``l2`` are numbers, or
    what reads them in every step.
    """

    def __init__(
        self,
        parameters: list[torch.Tensor],
        places: Sequence[int],
        *,
        l1: Factor = 0.0,
        l2: Factor = 0.0,
        term: Callable[[torch.Tensor], torch.Tensor] | None = None,
    ) -> None:
        self.parameters, self.places = parameters, places
        self.l1, self.l2, self.term = l1, l2, term

    def add(self, gradients: TensorList) -> TensorList:
        """Return the gradients of the parameters with the slopes added, at the parameters as they are now."""
        of_signs, of_squares = (each() if callable(each) else each for each in (self.l1, self.l2))
        if self.l2:
            gradients = foreach_shift(gradients, self.parameters, 2 * of_squares)
        if self.l1:
            gradients = foreach_shift(gradients, foreach_signs(self.parameters), of_signs)
        return gradients if self.term is None else foreach_shift(gradients, self.differentiate(self.term), 1.0)

    def differentiate(self, function: Callable[[torch.Tensor], torch.Tensor]) -> TensorList:
        """Return the gradients of the sum of a function over the parameters."""
        with torch.enable_grad():
            leaves = [each.detach().requires_grad_() for each in self.parameters]
            return torch.autograd.grad(torch.stack([function(leaf) for leaf in leaves]).sum(), leaves)


@torch.no_grad()
def regularize(gradients: TensorList, penalties: Iterable[Penalty], unless: torch.Tensor | None = None) -> TensorList:
    """Return gradients with the slopes of penalties added; not where the device says ``unless``."""
    require_gradients(gradients)
    found = list(gradients)
    for penalty in penalties:
        added = penalty.add([found[place] for place in penalty.places])
        for place, gradient in zip(penalty.places, added, strict=True):
            found[place] = gradient
    if unless is None:
        return tuple(found)
    pairs = zip(gradients, found, strict=True)
    return tuple(new if new is old else torch.where(unless.to(new.device), old, new) for old, new in pairs)
