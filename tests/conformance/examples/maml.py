"""MAML: two inner steps as functions of the weights that they began with, and eight waves for one outer update."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vjp

from tests.conformance.examples.example import Example, HandLoop, Tensors

RATE, WAVES = 0.02, 3


class SecondOrder(HandLoop):
    """The outer gradient runs back through the inner gradients."""

    def __init__(self) -> None:
        layers = [nn.Linear(1, 40), nn.Tanh(), nn.Linear(40, 40), nn.Tanh(), nn.Linear(40, 1)]
        self.net = nn.Sequential(*layers).double()
        self.nets = {"net": self.net}
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=2e-3)
        self.waves = 0

    def step(self, batch: Tensors, drawn: Tensors) -> Tensors:
        begun = {name: each.detach() for name, each in self.net.named_parameters()}
        loss, back = vjp(lambda w: self.judge(self.adapt(w, batch), batch["new_x"], batch["new_y"]), begun)
        (slopes,) = back(torch.ones_like(loss))
        for name, each in self.net.named_parameters():
            each.grad = slopes[name] / WAVES + (0 if each.grad is None else each.grad)
        self.waves += 1
        if self.waves % WAVES == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()
        return {"loss": loss.detach()}

    def judge(self, w: Tensors, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the error of the net with some weights."""
        return F.mse_loss(functional_call(self.net, w, (x,)), y)

    def adapt(self, w: Tensors, batch: Tensors) -> Tensors:
        """Return weights after two inner steps."""
        for _ in range(2):
            slopes = self.hand_on(grad(self.judge)(w, batch["x"], batch["y"]))
            w = {name: w[name] - RATE * slopes[name] for name in w}
        return w

    def hand_on(self, slopes: Tensors) -> Tensors:
        """Return the inner gradients as the outer one sees them."""
        return slopes


class FirstOrder(SecondOrder):
    """The inner gradients are constants of the outer one (FOMAML)."""

    def hand_on(self, slopes: Tensors) -> Tensors:
        return {name: slope.detach() for name, slope in slopes.items()}


def make_example(order: int, loop: type[HandLoop], mutant: type[HandLoop]) -> Example:
    """Return the example at an order; the mistake is the other order."""
    return Example(
        name="maml",
        loop=loop,
        mutant=mutant,
        shapes=dict.fromkeys(("x", "y", "new_x", "new_y"), (10, 1)),
        classes={},
        losses=("loss",),
        drawn=(),
        settings=(f"vars.order={order}", f"ops.step.accumulate={WAVES}"),
    )


EXAMPLE = make_example(2, SecondOrder, FirstOrder)
FIRST_ORDER = make_example(1, FirstOrder, SecondOrder)
