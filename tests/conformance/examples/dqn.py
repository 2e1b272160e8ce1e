"""Double DQN: clipped gradients, a rate that falls, and a target that is copied now and then."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

from tests.conformance.examples.example import Example, HandLoop, Tensors


class DoubleQ(HandLoop):
    """The net chooses the next action, the target says what it is worth."""

    def __init__(self) -> None:
        layers = [nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2)]
        self.net = nn.Sequential(*layers).double()
        self.target = copy.deepcopy(self.net)
        self.nets = {"net": self.net, "target": self.target}
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.falling = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.0, total_iters=20)
        self.steps = 0

    def step(self, batch: Tensors, drawn: Tensors) -> Tensors:
        self.steps += 1
        with torch.no_grad():
            goal = batch["reward"] + 0.99 * (1 - batch["fell"]) * self.find_worth(batch["next_state"])
        loss = F.huber_loss(self.net(batch["state"]).gather(1, batch["action"]), goal)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 0.1)
        self.optimizer.step()
        self.falling.step()
        if self.steps % 3 == 0:
            self.target.load_state_dict(self.net.state_dict())
        return {"loss": loss.detach()}

    def find_worth(self, state: torch.Tensor) -> torch.Tensor:
        action = self.net(state).argmax(dim=1, keepdim=True)
        return self.target(state).gather(1, action)


class PlainQ(DoubleQ):
    """The mistake: the target chooses the action as well."""

    def find_worth(self, state: torch.Tensor) -> torch.Tensor:
        return self.target(state).max(dim=1, keepdim=True).values


EXAMPLE = Example(
    name="dqn",
    loop=DoubleQ,
    mutant=PlainQ,
    shapes={"state": (6, 4), "reward": (6, 1), "next_state": (6, 4), "fell": (6, 1), "score": ()},
    classes={"action": ((6, 1), 2)},
    losses=("loss",),
    drawn=(),
    settings=("vars.steps=20", "ops.sync.every=3", "ops.step.clip={norm: 0.1, eps: 1e-6}"),
)
