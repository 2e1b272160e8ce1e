"""A model with two branches, of which a batch takes one."""

from __future__ import annotations

import torch


class Branching(torch.nn.Module):
    """x W, for batches with a positive mean, or x V."""

    def __init__(self) -> None:
        super().__init__()
        self.high, self.low = (torch.nn.Parameter(torch.ones(2, 2)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the product with one of the matrices."""
        return x @ (self.high if float(x.detach().mean()) > 0 else self.low)
