"""Soft actor-critic with a learned temperature as an expert writes it, with the example's numbers."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import nn

from tests.conformance.examples.example import Example, HandLoop, Tensors

ENTROPY, DISCOUNT, TAU = -1.0, 0.98, 0.005
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def mlp(inputs: int, outputs: int) -> nn.Module:
    """Return a net with two hidden layers."""
    hidden = [nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()]
    return nn.Sequential(*hidden, nn.Linear(64, outputs)).double()


class Temperature(nn.Module):
    """The logarithm of the temperature."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros((), dtype=torch.float64))


class SoftActorCritic(HandLoop):
    """Critics, actor and temperature move in every step; both targets follow."""

    def __init__(self) -> None:
        self.actor, self.critic_1, self.critic_2 = mlp(3, 2), mlp(4, 1), mlp(4, 1)
        self.late_1, self.late_2 = copy.deepcopy(self.critic_1), copy.deepcopy(self.critic_2)
        self.log_temperature = Temperature()
        self.nets = {
            "actor": self.actor,
            "critic_1": self.critic_1,
            "critic_2": self.critic_2,
            "late_critic_1": self.late_1,
            "late_critic_2": self.late_2,
            "log_temperature": self.log_temperature,
        }
        self.critics = [*self.critic_1.parameters(), *self.critic_2.parameters()]
        self.late = [*self.late_1.parameters(), *self.late_2.parameters()]
        self.judges = (self.critic_1, self.critic_2)
        self.opt_critics = torch.optim.Adam(self.critics, lr=3e-4)
        self.opt_actor = torch.optim.Adam(self.actor.parameters(), lr=3e-4)
        self.opt_temperature = torch.optim.Adam(self.log_temperature.parameters(), lr=3e-4)

    def act(self, state: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        middle, log_spread = self.actor(state).chunk(2, dim=1)
        log_spread = log_spread.clamp(-20, 2)
        action = torch.tanh(middle + log_spread.exp() * noise)
        normal = -0.5 * noise**2 - log_spread - HALF_LOG_2PI
        return action, normal - torch.log(1 + 1e-6 - action**2)

    def step(self, batch: Tensors, drawn: Tensors) -> Tensors:
        state, action, reward = batch["state"], batch["action"], batch["reward"]
        next_state, done = batch["next_state"], batch["done"]
        log_alpha = self.log_temperature.value

        with torch.no_grad():
            alpha = log_alpha.exp()
            next_action, next_log_p = self.act(next_state, drawn["next.noise"])
            next_pair = torch.cat([next_state, next_action], dim=1)
            worth = torch.minimum(self.late_1(next_pair), self.late_2(next_pair))
            goal = reward + DISCOUNT * (1 - done) * (worth - alpha * next_log_p)
        pair = torch.cat([state, action], dim=1)
        critic_loss = F.mse_loss(self.critic_1(pair), goal) + F.mse_loss(self.critic_2(pair), goal)
        self.opt_critics.zero_grad()
        critic_loss.backward()
        self.opt_critics.step()

        now_action, log_p = self.act(state, drawn["now.noise"])
        chosen = torch.cat([state, now_action], dim=1)
        require(self.critics, False)
        judged = torch.minimum(*(judge(chosen) for judge in self.judges))
        require(self.critics, True)
        actor_loss = (alpha * log_p - judged).mean()
        self.opt_actor.zero_grad()
        actor_loss.backward()
        self.opt_actor.step()

        alpha_loss = -(log_alpha.exp() * (log_p.detach() + ENTROPY)).mean()
        self.opt_temperature.zero_grad()
        alpha_loss.backward()
        self.opt_temperature.step()

        with torch.no_grad():
            torch._foreach_lerp_(self.late, self.critics, TAU)
        return {
            "step_critics.loss": critic_loss.detach(),
            "step_actor.loss": actor_loss.detach(),
            "step_alpha.loss": alpha_loss.detach(),
        }


class OneJudge(SoftActorCritic):
    """The mistake: the actor is judged by one critic."""

    def __init__(self) -> None:
        super().__init__()
        self.judges = (self.critic_1, self.critic_1)


def require(weights: Iterable[nn.Parameter], flag: bool) -> None:
    """Let gradients flow into weights, or not."""
    for weight in weights:
        weight.requires_grad_(flag)


EXAMPLE = Example(
    name="sac",
    loop=SoftActorCritic,
    mutant=OneJudge,
    shapes={"state": (6, 3), "action": (6, 1), "reward": (6, 1), "next_state": (6, 3), "done": (6, 1)},
    classes={},
    losses=("step_critics.loss", "step_actor.loss", "step_alpha.loss"),
    drawn=("next.noise", "now.noise"),
)
