"""Nets, gradients and optimizers as pure functions of float64 tensors: nothing is written in place.

It shares no code with the project and uses no module and no optimizer of PyTorch. Weights are a mapping from
``model.parameter`` to a tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch.func import grad

Weights = Mapping[str, torch.Tensor]
Loss = Callable[[Weights], torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Slots:
    """What Adam keeps: both moments of every parameter, and how many steps it has made."""

    first: Weights = field(default_factory=dict)
    second: Weights = field(default_factory=dict)
    count: int = 0


@dataclass(frozen=True, kw_only=True)
class World:
    """All that outlives a step."""

    weights: Weights
    slots: Mapping[str, Slots] = field(default_factory=dict)
    """By the name of an optimizer; one that has made no step is not there."""
    steps: int = 0


def of(weights: Weights, *models: str) -> Weights:
    """Return the weights of some models."""
    return {name: value for name, value in weights.items() if name.split(".")[0] in models}


def linear(w: Weights, path: str, x: torch.Tensor) -> torch.Tensor:
    """Return W x + b, or W x where there is no b."""
    product = x @ w[f"{path}.weight"].T
    return product + w[f"{path}.bias"] if f"{path}.bias" in w else product


def layer_norm(w: Weights, path: str, x: torch.Tensor) -> torch.Tensor:
    """Return x normalized along its last axis, with a gain and a bias."""
    apart = x - x.mean(-1, keepdim=True)
    variance = apart.square().mean(-1, keepdim=True)
    return apart / (variance + 1e-5).sqrt() * w[f"{path}.weight"] + w[f"{path}.bias"]


def leaky(x: torch.Tensor) -> torch.Tensor:
    """Return x where it is positive, else a fifth of it."""
    return torch.where(x > 0, x, 0.2 * x)


def gelu(x: torch.Tensor) -> torch.Tensor:
    """Return x times the normal distribution function of x."""
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def cross_entropy(scores: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Return the mean of -log softmax at the labels."""
    logs = scores - scores.logsumexp(1, keepdim=True)
    return -logs.gather(1, label[:, None]).mean()


def high(score: torch.Tensor) -> torch.Tensor:
    """Return the logistic loss of scores that should be high."""
    return torch.log1p(torch.exp(-score)).mean()


def low(score: torch.Tensor) -> torch.Tensor:
    """Return the logistic loss of scores that should be low."""
    return torch.log1p(torch.exp(score)).mean()


def slopes(loss: Loss, w: Weights, *models: str) -> Weights:
    """Return the gradient of a loss by the weights of some models."""
    return grad(lambda free: loss({**w, **free}))(dict(of(w, *models)))


def adam(
    w: Weights, g: Weights, slots: Slots, *, lr: float, betas: tuple[float, float] = (0.9, 0.999)
) -> tuple[Weights, Slots]:
    """Return weights and slots after a step of Adam (Kingma and Ba 2015, algorithm 1) along a gradient."""
    found, ways = moments(g, slots, betas)
    return {**w, **{name: w[name] - lr * way for name, way in ways.items()}}, found


def moments(g: Weights, slots: Slots, betas: tuple[float, float]) -> tuple[Slots, Weights]:
    """Return the slots after a gradient, and Adam's direction at a learning rate of 1."""
    (one, two), count = betas, slots.count + 1
    first = {name: one * slots.first.get(name, 0.0) + (1 - one) * value for name, value in g.items()}
    second = {name: two * slots.second.get(name, 0.0) + (1 - two) * value.square() for name, value in g.items()}
    ways = {name: first[name] / (1 - one**count) / ((second[name] / (1 - two**count)).sqrt() + 1e-8) for name in g}
    return Slots(first=first, second=second, count=count), ways
