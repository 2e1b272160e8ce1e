"""SimCLR with two views of every image, which `grid_sample` crops; each is told from all other views of the batch."""

from __future__ import annotations

from itertools import chain

import torch
import torch.nn.functional as F
from torch import nn

from tests.conformance.examples.example import Example, HandLoop, Tensors


def make_encoder() -> nn.Module:
    """Return an encoder."""
    first = [nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*first, *second, nn.Conv2d(64, 128, 2), nn.ReLU(), nn.Flatten()).double()


class Contrast(HandLoop):
    """One loss of both views, one step of encoder and projector."""

    def __init__(self) -> None:
        self.encoder = make_encoder()
        self.projector = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 64)).double()
        self.nets = {"encoder": self.encoder, "projector": self.projector}
        self.optimizer = torch.optim.Adam(chain(self.encoder.parameters(), self.projector.parameters()), lr=2e-3)

    def step(self, batch: Tensors, drawn: Tensors) -> Tensors:
        views = [look(batch["image"], drawn, name) for name in ("one", "other")]
        loss = self.tell_apart(*(F.normalize(self.projector(self.encoder(view)), dim=1) for view in views))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"step.loss": loss.detach()}

    def tell_apart(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        """Return the loss of the paper: a view is told from all views but itself."""
        every, rows = torch.cat([one, other]), len(one)
        scores = (every @ every.T / 0.5).masked_fill(torch.eye(2 * rows, dtype=torch.bool), -torch.inf)
        return F.cross_entropy(scores, torch.arange(2 * rows).roll(rows))


class ToldFromOthersAlone(Contrast):
    """The mistake: a view is not told from views of its own kind."""

    def tell_apart(self, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        scores, own = one @ other.T / 0.5, torch.arange(len(one))
        return (F.cross_entropy(scores, own) + F.cross_entropy(scores.T, own)) / 2


def look(image: torch.Tensor, drawn: Tensors, name: str) -> torch.Tensor:
    """Return a view: crop, contrast, noise."""
    size, middle, contrast, grain = (drawn[f"{name}.{each}"] for each in ("size", "middle", "contrast", "grain"))
    place = 3.5 + middle + size * (torch.arange(8.0, dtype=torch.float64) - 3.5)
    rows, columns = (2 * place / 7 - 1).unbind(1)
    grid = torch.stack([columns[:, None].expand(-1, 8, 8), rows[:, :, None].expand(-1, 8, 8)], dim=-1)
    return contrast * F.grid_sample(image + 1, grid, align_corners=True) - 1 + grain


EXAMPLE = Example(
    name="simclr",
    loop=Contrast,
    mutant=ToldFromOthersAlone,
    shapes={"image": (6, 1, 8, 8)},
    classes={},
    losses=("step.loss",),
    drawn=tuple(f"{view}.{name}" for view in ("one", "other") for name in ("size", "middle", "contrast", "grain")),
)
