"""What users bring along: optimizers that write past the version counter, shared weights, a loss without a graph."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


class PastTheCounter(torch.optim.Optimizer):
    """Plain descent that writes through ``.data``, as optimizers did before PyTorch could notice it."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float) -> None:
        super().__init__(params, {"lr": lr})

    def step(self, closure: None = None) -> None:
        """Write every parameter."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.data.add_(parameter.grad, alpha=-group["lr"])


class Reader(nn.Module):
    """Multiplies with its matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the product."""
        return x @ self.weight


class Speaker(Reader):
    """Multiplies with the matrix of a reader, which it is given."""


def outside(scores: torch.Tensor) -> torch.Tensor:
    """Return a loss that is computed with NumPy, and so without a graph."""
    return torch.as_tensor(scores.detach().numpy() ** 2).mean()


def half_outside(scores: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Return a loss of which one half is computed with NumPy."""
    return scores.square().mean() + outside(others)
