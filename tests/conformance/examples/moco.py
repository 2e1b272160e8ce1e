"""MoCo with a queue: its keys are those of the published order, in which the average comes before the forwards."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

from graphspec.declare.inputs import StateSpec
from tests.conformance.examples.example import Example, HandLoop, Tensors
from tests.oracle.states import begin

SEED = 5
"""Of the build that the loop is compared with: the queue begins with numbers of its own."""


def make_encoder() -> nn.Module:
    """Return an encoder."""
    hidden = [nn.Flatten(), nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64), nn.GELU()]
    return nn.Sequential(*hidden, nn.Linear(64, 32)).double()


class Contrast(HandLoop):
    """The order of the paper's pseudocode: average, key, loss, step, enqueue and dequeue.

    The average that is compared is the one that the next step would begin with: the spec makes it after the update.
    """

    def __init__(self) -> None:
        self.encoder = make_encoder()
        self.ahead = copy.deepcopy(self.encoder)
        self.nets = {"encoder": self.encoder, "slow_encoder": self.ahead}
        self.slow: nn.Module | None = None
        self.optimizer = torch.optim.SGD(self.encoder.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
        self.queue = torch.from_numpy(begin("queue", StateSpec(shape=(512, 32), init="unit_normal"), SEED))

    def step(self, batch: Tensors, drawn: Tensors) -> Tensors:
        slow = self.slow = average(self.slow or copy.deepcopy(self.encoder), self.encoder)
        query = F.normalize(self.encoder(batch["image"] + drawn["grain_1"]), dim=1)
        with torch.no_grad():
            key = F.normalize(slow(batch["image"] + drawn["grain_2"]), dim=1)
        own = torch.einsum("nc,nc->n", query, key).unsqueeze(1)
        scores = torch.cat([own, torch.einsum("nc,kc->nk", query, self.seen(key))], dim=1) / 0.2
        loss = F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.int64))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.queue = torch.cat([key, self.queue])[:512]
        self.ahead.load_state_dict(average(copy.deepcopy(slow), self.encoder).state_dict())
        return {"loss": loss.detach(), "queue": self.queue}

    def seen(self, key: torch.Tensor) -> torch.Tensor:
        """Return the keys that a query is told from."""
        return self.queue


class ToldFromItself(Contrast):
    """The mistake: the newest keys are in the queue already, so a query is told from its own key."""

    def seen(self, key: torch.Tensor) -> torch.Tensor:
        return torch.cat([key, self.queue])[:512]


@torch.no_grad()
def average(slow: nn.Module, encoder: nn.Module) -> nn.Module:
    """Move the slow encoder towards the encoder."""
    for old, new in zip(slow.parameters(), encoder.parameters(), strict=True):
        old.mul_(0.99).add_(new, alpha=0.01)
    return slow


EXAMPLE = Example(
    name="moco",
    loop=Contrast,
    mutant=ToldFromItself,
    shapes={"image": (6, 1, 8, 8)},
    classes={},
    losses=("loss", "queue"),
    drawn=("grain_1", "grain_2"),
)
