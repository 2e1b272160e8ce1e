"""PCGrad: the trunk's two gradients, each without its part against the other, and a loss for each head."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

from tests.conformance.examples.example import Example, HandLoop, Tensors

Slopes = tuple[torch.Tensor, ...]


class PCGrad(HandLoop):
    """The step as a function of all weights, with one flat gradient of the trunk per task."""

    def __init__(self) -> None:
        self.nets = {
            "trunk": nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 12)).double(),
            "classifier": nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 10)).double(),
            "painter": nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh()).double(),
        }
        self.optimizers = {name: torch.optim.Adam(net.parameters(), lr=1e-3) for name, net in self.nets.items()}

    def step(self, batch: Tensors, drawn: Tensors) -> Tensors:
        values = {name: dict(net.named_parameters()) for name, net in self.nets.items()}
        losses = self.compare(values, batch)
        first, second = (
            flat(torch.autograd.grad(loss, [*values["trunk"].values()], retain_graph=True)) for loss in losses
        )
        agreed = self.without(first, second) + self.without(second, first)
        heads = [
            torch.autograd.grad(loss, [*values[name].values()], retain_graph=True)
            for name, loss in zip(("classifier", "painter"), losses, strict=True)
        ]
        for name, slopes in zip(self.nets, (like(agreed, values["trunk"].values()), *heads), strict=True):
            for weight, slope in zip(self.nets[name].parameters(), slopes, strict=True):
                weight.grad = slope
            self.optimizers[name].step()
        return {"class_loss": losses[0].detach(), "image_loss": losses[1].detach()}

    def compare(self, values: dict, batch: Tensors) -> Slopes:
        """Return the losses of the two tasks at some weights."""
        code = functional_call(self.nets["trunk"], values["trunk"], batch["image"])
        scores = functional_call(self.nets["classifier"], values["classifier"], code)
        painted = functional_call(self.nets["painter"], values["painter"], code).reshape(-1, 1, 8, 8)
        return F.cross_entropy(scores, batch["label"]), 10 * F.mse_loss(painted, batch["image"])

    def without(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Return a gradient without its part against another (Yu et al. 2020, algorithm 1)."""
        return one - one.dot(other) / other.dot(other) * other if one.dot(other) < 0 else one


class Ordinary(PCGrad):
    """The mistake: the gradients are added up as they are."""

    def without(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one


def flat(slopes: Slopes) -> torch.Tensor:
    """Return gradients as one vector."""
    return torch.cat([slope.reshape(-1) for slope in slopes])


def like(vector: torch.Tensor, weights: object) -> Slopes:
    """Return a vector cut into the shapes of some weights."""
    found = list(weights)
    parts = vector.split([weight.numel() for weight in found])
    return tuple(part.reshape(weight.shape) for part, weight in zip(parts, found, strict=True))


EXAMPLE = Example(
    name="pcgrad",
    loop=PCGrad,
    mutant=Ordinary,
    shapes={"image": (6, 1, 8, 8)},
    classes={"label": ((6,), 10)},
    losses=("class_loss", "image_loss"),
    drawn=(),
)
