"""Models and a loss of one's own: what custom.yaml names as `zoo:...`."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Encoder(nn.Module):
    """Map an image [n, 1, 8, 8] to the mean and the logarithm of the variance of its code, both [n, size]."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU())
        self.mean = nn.Linear(128, size)
        self.log_variance = nn.Linear(128, size)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance."""
        hidden = self.body(image)
        return self.mean(hidden), self.log_variance(hidden)


class Decoder(nn.Module):
    """Map a code [n, size] to an image [n, 1, 8, 8] with values from -1 to 1."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(size, 128), nn.ReLU(), nn.Linear(128, 64), nn.Tanh())

    def forward(self, code: Tensor) -> Tensor:
        """Return the image."""
        return self.body(code).unflatten(1, (1, 8, 8))


def kl_to_unit_normal(mean: Tensor, log_variance: Tensor) -> Tensor:
    """Return KL(N(mean, variance) || N(0, 1)), summed over the code, mean over the batch (Kingma and Welling 2013)."""
    each = mean.square() + log_variance.exp() - log_variance - 1
    return 0.5 * torch.mean(torch.sum(each, dim=1))
