"""Layers that ``torch.nn`` lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Sequential):
    """The input plus what the layers make of it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x + layers(x)."""
        return x + super().forward(x)


class Dropout(nn.Dropout):
    """Dropout that draws keyed numbers where a source of them is attached as ``random``."""

    random: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x, while training with elements zeroed with probability p and the others divided by 1 - p."""
        if not self.training or self.p == 0.0:
            return x
        if self.random is None or self.p == 1.0:
            return F.dropout(x, self.p)
        return x * self.random.keep_mask(x, self.p).div_(1.0 - self.p)


class Reshape(nn.Module):
    """The same elements in another shape, the batch left as it is."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x as [batch, *shape]."""
        return x.reshape(x.shape[0], *self.shape)

    def extra_repr(self) -> str:
        """Return what ``print(model)`` shows between the brackets."""
        return repr(self.shape)


class GlobalAvgPool(nn.Module):
    """The mean over height and width."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return [batch, channels] of [batch, channels, height, width]."""
        return x.mean(dim=(2, 3))


class ParameterModel(nn.Module):
    """A single tensor that is trained."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(shape))

    def forward(self) -> torch.Tensor:
        """Return the tensor as a value of its own: a later update writes into the parameter in place."""
        return self.value.clone()
