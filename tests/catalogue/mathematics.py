"""The mathematics of the references: pure functions of float64 tensors; nothing is written in place.

It shares no code with the project. Weights are a mapping from a name to a tensor, a world is a mapping from a model's
name to its weights (buffers included), and everything that learns returns a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch.func import grad

Weights = Mapping[str, torch.Tensor]
World = Mapping[str, Weights]

BUFFERS = ("1.running_mean", "1.running_var", "1.num_batches_tracked")


def mlp(w: Weights, x: torch.Tensor) -> torch.Tensor:
    """Return linear, tanh, linear of x."""
    return torch.tanh(x @ w["0.weight"].T + w["0.bias"]) @ w["2.weight"].T + w["2.bias"]


def normed(w: Weights, x: torch.Tensor, *, train: bool) -> torch.Tensor:
    """Return linear, batch_norm, tanh, linear of x, with the statistics of the batch or the running ones."""
    h = x @ w["0.weight"].T + w["0.bias"]
    mean, var = (h.mean(0), h.var(0, correction=0)) if train else (w["1.running_mean"], w["1.running_var"])
    scaled = (h - mean) / (var + 1e-5).sqrt() * w["1.weight"] + w["1.bias"]
    return torch.tanh(scaled) @ w["3.weight"].T + w["3.bias"]


def moved(w: Weights, x: torch.Tensor) -> Weights:
    """Return the weights with the running statistics that a call of `normed` in train mode leaves."""
    h = (x @ w["0.weight"].T + w["0.bias"]).detach()
    mean = 0.9 * w["1.running_mean"] + 0.1 * h.mean(0)
    var = 0.9 * w["1.running_var"] + 0.1 * h.var(0, correction=1)
    return {**w, **dict(zip(BUFFERS, (mean, var, w["1.num_batches_tracked"] + 1), strict=True))}


def slopes(loss: Callable[[Weights], torch.Tensor], w: Weights) -> Weights:
    """Return the gradient of a loss at some weights, buffers left out."""
    fixed = {name: value for name, value in w.items() if name in BUFFERS}
    free = {name: value for name, value in w.items() if name not in BUFFERS}
    return grad(lambda free: loss({**free, **fixed}))(free)


def sgd(w: Weights, g: Weights, lr: float = 0.1) -> Weights:
    """Return the weights after a step down the gradient; what has no gradient stays."""
    return {name: value - lr * g[name] if name in g else value for name, value in w.items()}


def descend(loss: Callable[[Weights], torch.Tensor], w: Weights, lr: float = 0.1) -> Weights:
    """Return the weights after one step of plain gradient descent on a loss."""
    return sgd(w, slopes(loss, w), lr)


def clip(g: Weights, norm: float) -> Weights:
    """Return a gradient that is at most so long, all its tensors together."""
    length = torch.cat([value.flatten() for value in g.values()]).norm()
    return {name: value * (norm / length).clamp(max=1.0) for name, value in g.items()}


def lerp(old: Weights, new: Weights, share: float) -> Weights:
    """Return the average of two sets of weights, with this share of the new one."""
    return {name: (1 - share) * value + share * new[name] for name, value in old.items()}


def low(score: torch.Tensor) -> torch.Tensor:
    """Return the loss of logits that should say no."""
    return F.softplus(score).mean()


def high(score: torch.Tensor) -> torch.Tensor:
    """Return the loss of logits that should say yes."""
    return F.softplus(-score).mean()


def mse(a: torch.Tensor, b: torch.Tensor | float) -> torch.Tensor:
    """Return the mean of the squared differences."""
    return (a - b).square().mean()
