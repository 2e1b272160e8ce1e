"""TD3 as it is published, with the example's numbers."""

from __future__ import annotations

import copy
from itertools import chain

import torch
import torch.nn.functional as F
from torch import nn

from tests.conformance.examples.example import Example, HandLoop, Tensors


def mlp(inputs: int, *end: nn.Module) -> nn.Module:
    """Return a net with two hidden layers and one result."""
    hidden = [nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(64, 1), *end).double()


class TwinDelayed(HandLoop):
    """Every second step the actor moves and the three targets follow."""

    def __init__(self) -> None:
        self.live = {"actor": mlp(3, nn.Tanh()), "critic_1": mlp(4), "critic_2": mlp(4)}
        self.late = {f"late_{name}": copy.deepcopy(net) for name, net in self.live.items()}
        self.nets = self.live | self.late
        self.opt_actor = torch.optim.Adam(self.live["actor"].parameters(), lr=1e-3)
        critics = (self.live["critic_1"], self.live["critic_2"])
        self.opt_critics = torch.optim.Adam(chain(*(net.parameters() for net in critics)), lr=1e-3)
        self.steps = 0

    def step(self, batch: Tensors, drawn: Tensors) -> Tensors:
        self.steps += 1
        goal = self.find_goal(batch, drawn["noise"])
        pair = torch.cat([batch["state"], batch["action"]], dim=1)
        loss = sum(F.mse_loss(self.live[name](pair), goal) for name in ("critic_1", "critic_2"))
        self.opt_critics.zero_grad()
        loss.backward()
        self.move(batch["state"])
        return {"step_critics.loss": loss.detach()}

    @torch.no_grad()
    def find_goal(self, batch: Tensors, noise: torch.Tensor) -> torch.Tensor:
        action = self.late["late_actor"](batch["next_state"]) + noise.clamp(-0.5, 0.5)
        pair = torch.cat([batch["next_state"], action.clamp(-1, 1)], dim=1)
        worth = torch.minimum(self.late["late_critic_1"](pair), self.late["late_critic_2"](pair))
        return batch["reward"] + 0.98 * (1 - batch["done"]) * worth

    def move(self, state: torch.Tensor) -> None:
        self.opt_critics.step()
        if self.steps % 2 == 0:
            self.move_actor(state)
            self.follow()

    def move_actor(self, state: torch.Tensor) -> None:
        self.opt_actor.zero_grad()
        value = self.live["critic_1"](torch.cat([state, self.live["actor"](state)], dim=1)).mean()
        (-value).backward(inputs=list(self.live["actor"].parameters()))
        self.opt_actor.step()

    @torch.no_grad()
    def follow(self) -> None:
        for name, net in self.live.items():
            for old, new in zip(self.late[f"late_{name}"].parameters(), net.parameters(), strict=True):
                old.lerp_(new, 0.005)


class EarlyActor(TwinDelayed):
    """The mistake: the actor is judged by the critic as it was before its update."""

    def move(self, state: torch.Tensor) -> None:
        if self.steps % 2 == 0:
            self.move_actor(state)
        self.opt_critics.step()
        if self.steps % 2 == 0:
            self.follow()


EXAMPLE = Example(
    name="td3",
    loop=TwinDelayed,
    mutant=EarlyActor,
    shapes={"state": (6, 3), "action": (6, 1), "reward": (6, 1), "next_state": (6, 3), "done": (6, 1)},
    classes={},
    losses=("step_critics.loss",),
    drawn=("noise",),
)
