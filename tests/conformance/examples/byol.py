"""BYOL with two views, a projector that is averaged too, and BatchNorm by the batch in both of them."""

from __future__ import annotations

import copy
from itertools import chain

import torch
import torch.nn.functional as F
from torch import nn

from tests.conformance.examples.example import Example, HandLoop, Tensors
from tests.conformance.examples.views import move


def mlp(inputs: int, *, bias: bool) -> nn.Module:
    """Return a projector, or a predictor, which ends in a bias."""
    first = nn.Linear(inputs, 128, bias=False)
    return nn.Sequential(first, nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 64, bias=bias)).double()


def convolutions() -> nn.Module:
    """Return an encoder."""
    first = [nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*first, *second, nn.Conv2d(64, 128, 2, bias=False), nn.ReLU(), nn.Flatten()).double()


class Bootstrap(HandLoop):
    """The order of the paper: one loss of both views, one step, then both averages."""

    def __init__(self) -> None:
        self.encoder, self.projector, self.predictor = convolutions(), mlp(128, bias=False), mlp(64, bias=True)
        self.late = {"late_encoder": copy.deepcopy(self.encoder), "late_projector": copy.deepcopy(self.projector)}
        self.nets = {"encoder": self.encoder, "projector": self.projector, "predictor": self.predictor, **self.late}
        online = (self.encoder, self.projector, self.predictor)
        self.optimizer = torch.optim.Adam(chain(*(net.parameters() for net in online)), lr=2e-3)

    def step(self, batch: Tensors, drawn: Tensors) -> Tensors:
        views = [move(batch["image"], drawn[f"move_{i}"]) + drawn[f"grain_{i}"] for i in (1, 2)]
        guesses = [self.predictor(small) for small in [self.projector(self.encoder(view)) for view in views]]
        with torch.no_grad():
            goals = [self.late["late_projector"](self.late["late_encoder"](view)) for view in views]
        loss = apart(guesses[0], goals[1]) + apart(guesses[1], goals[0])
        self.optimizer.zero_grad()
        loss.backward()
        self.move_on()
        return {"loss": loss.detach()}

    def move_on(self) -> None:
        self.optimizer.step()
        self.follow()

    @torch.no_grad()
    def follow(self) -> None:
        online = chain(self.encoder.parameters(), self.projector.parameters())
        for old, new in zip(chain(*(net.parameters() for net in self.late.values())), online, strict=True):
            old.mul_(0.99).add_(new, alpha=0.01)


class EarlyTarget(Bootstrap):
    """The mistake: the targets follow the online nets as they were before the step."""

    def move_on(self) -> None:
        self.follow()
        self.optimizer.step()


def apart(guess: torch.Tensor, goal: torch.Tensor) -> torch.Tensor:
    """Return the squared distance of two directions, averaged over the batch."""
    return (F.normalize(guess, dim=1) - F.normalize(goal, dim=1)).square().sum(dim=1).mean()


EXAMPLE = Example(
    name="byol",
    loop=Bootstrap,
    mutant=EarlyTarget,
    shapes={"image": (6, 1, 8, 8)},
    classes={},
    losses=("loss",),
    drawn=("move_1", "grain_1", "move_2", "grain_2"),
    allow=("views",),
)
