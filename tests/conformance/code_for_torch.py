"""What own-code.yaml names on PyTorch."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn


class Net(nn.Module):
    """Two results of a hidden layer, which has a method of its own."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def encode(self, x: torch.Tensor) -> torch.Tensor:
        """Return the hidden layer."""
        return torch.tanh(self.first(x))

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
        """Return two results."""
        hidden = self.encode(x)
        return self.second(hidden) * scale, torch.exp(hidden)


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x seen twice."""
        return self.second(torch.tanh(self.first(x)))


class Idler(nn.Module):
    """A layer beside a parameter that it does not use."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.spare = nn.Linear(width, width), nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the layer makes of x."""
        return torch.tanh(self.first(x))


class Descent(torch.optim.Optimizer):
    """Plain descent."""

    def __init__(self, params: Iterable[nn.Parameter], lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Write every parameter."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.add_(parameter.grad, alpha=-group["lr"])


def bend(x: torch.Tensor, strength: float) -> torch.Tensor:
    """Return x / sqrt(1 + strength x^2)."""
    return x * torch.rsqrt(1 + strength * x.square())


def gap(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the mean of log(1 + (x - y)^2)."""
    return torch.log1p((x - y).square()).mean()


def halve(gradients: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Return gradients half as long."""
    return tuple(0.5 * gradient for gradient in gradients)


def size(x: torch.Tensor, power: float) -> torch.Tensor:
    """Return the mean of a power of the length of rows."""
    return (x.norm(dim=1) ** power).mean()


def make_tied() -> dict[str, nn.Module]:
    """Return two layers that share a weight."""
    reader, writer = nn.Linear(4, 4).double(), nn.Linear(4, 4).double()
    writer.weight = reader.weight
    return {"reader": reader, "writer": writer}


def quartic(w: torch.Tensor) -> torch.Tensor:
    """Return a twentieth of the sum of fourth powers."""
    return 0.05 * (w**4).sum()
