"""Windows: the gradients of several steps, added up until an update takes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from runtime.backends.torch.library.kernels import TensorList, foreach_gather, foreach_share
from runtime.backends.torch.library.optimizers import require_gradients


class Window:
    """What several steps gave, in float32 at least, and for how many rows it stands."""

    def __init__(self, parameters: Iterable[torch.Tensor], is_mean: bool = True) -> None:
        self.parameters, self.is_mean = list(parameters), is_mean
        self.totals: TensorList = []
        self.rows = 0

    @torch.no_grad()
    def add(self, gradients: Sequence[torch.Tensor], rows: int = 1) -> None:
        """Add gradients, each as often as it has rows."""
        require_gradients(gradients)
        wide = [g.to(torch.promote_types(g.dtype, torch.float32)) for g in gradients]
        self.totals = foreach_gather(self.totals, wide, rows)
        self.rows += rows

    @torch.no_grad()
    def take(self) -> tuple[torch.Tensor, ...]:
        """Return the mean over all rows, or the sum, and begin anew."""
        found = foreach_share(self.totals, self.rows) if self.is_mean else self.totals
        self.totals, self.rows = [], 0
        return tuple(total.to(p.dtype) for total, p in zip(found, self.parameters, strict=True))
