"""Sharpness-aware minimization: the gradient at the weights that are a step of length rho uphill."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, grad_and_value

from tests.conformance.examples.example import Example, HandLoop, Tensors

RHO = 0.1


class Uphill(HandLoop):
    """How the way uphill moves with the weights is left out, as in the paper."""

    def __init__(self) -> None:
        layers = [nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)]
        self.net = nn.Sequential(nn.Flatten(), *layers).double()
        self.nets = {"net": self.net}
        self.momenta: Tensors = {}

    def step(self, batch: Tensors, drawn: Tensors) -> Tensors:
        def judge(w: Tensors) -> torch.Tensor:
            """Return the loss of the net with some weights."""
            return F.cross_entropy(functional_call(self.net, w, (batch["image"],)), batch["label"])

        def climb(w: Tensors) -> torch.Tensor:
            """Return the loss uphill of some weights."""
            slopes = grad(judge)(w)
            way = self.hand_on({name: slope / self.length(slopes) for name, slope in slopes.items()})
            return judge({name: w[name] + RHO * way[name] for name in w})

        w = {name: each.detach() for name, each in self.net.named_parameters()}
        slopes, worst = grad_and_value(climb)(w)
        found = {"loss": judge(w), "worst_loss": worst}
        for name, each in self.net.named_parameters():
            self.momenta[name] = 0.9 * self.momenta.get(name, torch.zeros(())) + slopes[name]
            each.data -= 0.05 * self.momenta[name]
        return found

    def length(self, slopes: Tensors) -> torch.Tensor:
        """Return the norm of all gradients together."""
        return torch.sqrt(sum((slope.square().sum() for slope in slopes.values()), torch.zeros(()).double()))

    def hand_on(self, way: Tensors) -> Tensors:
        """Return the way uphill as the gradient there sees it."""
        return {name: each.detach() for name, each in way.items()}


class OneNorm(Uphill):
    """The mistake: the way is normalized by the longest of the gradients, not by all of them together."""

    def length(self, slopes: Tensors) -> torch.Tensor:
        return torch.stack([slope.norm() for slope in slopes.values()]).max()


class Followed(Uphill):
    """The gradient runs back through the way uphill."""

    def hand_on(self, way: Tensors) -> Tensors:
        return way


def make_example(order: int, loop: type[HandLoop], mutant: type[HandLoop]) -> Example:
    """Return the example at an order."""
    return Example(
        name="sam",
        loop=loop,
        mutant=mutant,
        shapes={"image": (6, 1, 8, 8)},
        classes={"label": ((6,), 10)},
        losses=("loss", "worst_loss"),
        drawn=(),
        settings=(f"vars.order={order}",),
    )


EXAMPLE = make_example(1, Uphill, OneNorm)
SECOND_ORDER = make_example(2, Followed, Uphill)
