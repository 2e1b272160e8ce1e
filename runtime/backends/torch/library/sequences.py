"""Layers of sequences [batch, positions, features]: positions, attention, recurrence."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from runtime.backends.torch.library.layers import Dropout


class PositionalEmbedding(nn.Module):
    """The input plus a learned vector for every position."""

    def __init__(self, count: int, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(count, features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x plus the first rows of the weight; RuntimeError where there are fewer than positions."""
        return x + self.weight.narrow(0, 0, x.shape[1])


class SinusoidalPositions(nn.Module):
    """The input plus sines and cosines of its positions (Vaswani et al. 2017, section 3.5)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x plus sin(p / 10000^(2i / features)) at feature 2i and the cosine at 2i + 1, p from 0."""
        positions, features = x.shape[1:]
        feature = torch.arange(features, device=x.device)
        rates = 10000.0 ** -(feature.double() // 2 * 2 / features)
        angles = torch.arange(positions, device=x.device).double()[:, None] * rates
        return x + torch.where(feature % 2 == 0, angles.sin(), angles.cos()).to(x.dtype)


class MultiHeadAttention(nn.Module):
    """Self-attention with several heads (Vaswani et al. 2017); its tensors are those of ``nn.MultiheadAttention``.

    Written out, so that it has derivatives of any order and draws keyed numbers.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, causal: bool = False, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__()
        self.heads, self.causal = num_heads, causal
        self.in_proj_weight = nn.Parameter(torch.zeros(3 * embed_dim, embed_dim))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * embed_dim)) if bias else None
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return, for every position, what it takes of all positions, or of those up to itself."""
        batch, positions, features = x.shape
        projected = F.linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)
        query, key, value = (part.reshape(batch, positions, self.heads, -1).transpose(1, 2) for part in projected)
        scores = query @ key.transpose(2, 3) / math.sqrt(features // self.heads)
        if self.causal:
            later = torch.ones(positions, positions, dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(later, -torch.inf)
        mixed = self.dropout(torch.softmax(scores, -1)) @ value
        return self.out_proj(mixed.transpose(1, 2).reshape(batch, positions, features))


class Recurrent(nn.Module):
    """A recurrent layer with tensors as in PyTorch, which are passed to its kernels in every call.

    ``nn.LSTM`` and ``nn.GRU`` keep a list of their own weights, in which no other tensors can take their place.
    """

    gates = 0

    def __init__(self, input_size: int, hidden_size: int, bidirectional: bool = False, last: bool = False) -> None:
        super().__init__()
        self.size, self.both, self.last = hidden_size, bidirectional, last
        rows = self.gates * hidden_size
        shapes = {
            "weight_ih": (rows, input_size),
            "weight_hh": (rows, hidden_size),
            "bias_ih": (rows,),
            "bias_hh": (rows,),
        }
        for suffix in ("", "_reverse")[: 1 + bidirectional]:
            for name, shape in shapes.items():
                self.register_parameter(f"{name}_l0{suffix}", nn.Parameter(torch.zeros(shape)))

    def run(self, x: torch.Tensor, start: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the states at all positions, and the final states [directions, batch, size]."""
        raise TypeError(f"{type(self).__name__} has no run")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the states of all positions, or the final one; in the precision of the weights."""
        with torch.autocast(x.device.type, enabled=False):
            x = x.to(next(self.parameters()).dtype)
            every, final = self.run(x, x.new_zeros(1 + self.both, x.shape[0], self.size))
        return torch.cat(final.unbind(), dim=1) if self.last else every


class LSTM(Recurrent):
    """A long short-term memory (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000)."""

    gates = 4

    def run(self, x: torch.Tensor, start: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the states at all positions, and the final states."""
        weights = tuple(self.parameters())
        every, final, _ = torch.lstm(x, (start, start), weights, True, 1, 0.0, self.training, self.both, True)
        return every, final


class GRU(Recurrent):
    """A gated recurrent unit (Cho et al. 2014), the reset gate after the product as in PyTorch."""

    gates = 3

    def run(self, x: torch.Tensor, start: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the states at all positions, and the final states."""
        return torch.gru(x, start, tuple(self.parameters()), True, 1, 0.0, self.training, self.both, True)


class SpectralNorm(nn.Module):
    """A layer whose weight is divided by its largest singular value, which it estimates (Miyato et al. 2018).

    The weight is a matrix with a row per output. ``u`` is the estimate of its first left singular vector: every call
    makes one step of power iteration from it, in training the last one is kept.
    """

    def __init__(self, layer: nn.Linear | nn.Conv1d | nn.Conv2d | nn.ConvTranspose2d) -> None:
        super().__init__()
        self.add_module("0", layer)
        self.axis = int(isinstance(layer, nn.ConvTranspose2d))
        self.register_buffer("u", torch.zeros(layer.weight.shape[self.axis]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the layer makes of x with the weight divided; gradients pass through the weight alone."""
        layer, before = self.get_submodule("0"), self.get_buffer("u")
        weight = layer.get_parameter("weight")
        with torch.autocast(x.device.type, enabled=False):
            matrix = weight.movedim(self.axis, 0).flatten(1)
            with torch.no_grad():
                v = F.normalize(matrix.T @ before, dim=0)
                u = F.normalize(matrix @ v, dim=0)
                if self.training:
                    before.copy_(u)
            divided = weight / (u @ (matrix @ v))
        return torch.func.functional_call(layer, {"weight": divided}, (x,))
