"""The steps that are compared with other libraries, by hand; their losses are functions that all torch variants call.

So every library gets an expert's arithmetic, and what is compared is what it does around that.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from benchmarks.workloads import Batch, MlpGan, Step, Workload, follow, follow_one_by_one, require

HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
DISCOUNT, TAU, ENTROPY, RATE = 0.98, 0.005, -1.0, 3e-4


class SmallMlp(Workload):
    """A small classifier, batch 16, with one loss and one optimizer."""

    name = "small-mlp"

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.nets = {"classifier": self.net}

    def batch(self, generator: torch.Generator) -> Batch:
        x = torch.randn(16, 32, generator=generator)
        return {"x": x, "label": torch.randint(10, (16,), generator=generator)}

    def idiom(self) -> Step:
        optimizer = torch.optim.Adam(self.net.parameters(), 1e-3)
        criterion = nn.CrossEntropyLoss()

        def step(batch: Batch) -> Mapping[str, Any]:
            optimizer.zero_grad()
            loss = criterion(self.net(batch["x"]), batch["label"])
            loss.backward()
            optimizer.step()
            return {"loss": loss.item()}

        return step

    def optimizer(self) -> torch.optim.Optimizer:
        """Return that of the expert and of the libraries."""
        return torch.optim.Adam(self.net.parameters(), 1e-3, fused=True)

    def expert(self) -> Step:
        optimizer = self.optimizer()

        def step(batch: Batch) -> Mapping[str, Any]:
            loss = classify(self.net, batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return {"loss": loss.detach()}

        return step


def classify(net: nn.Module, batch: Batch) -> torch.Tensor:
    """Return the loss of the classifier."""
    return F.cross_entropy(net(batch["x"]), batch["label"])


def judge_both(d: nn.Module, image: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
    """Return the loss of a GAN's discriminator, which judges images and detached fakes in one call."""
    on_real, on_fake = d(torch.cat([image, fake])).chunk(2)
    return F.binary_cross_entropy(on_real, ONES) + F.binary_cross_entropy(on_fake, ZEROS)


def fool(d: nn.Module, fake: torch.Tensor) -> torch.Tensor:
    """Return the loss of a GAN's generator."""
    return F.binary_cross_entropy(d(fake), ONES)


ONES, ZEROS = torch.ones(64, 1), torch.zeros(64, 1)
"""The labels of a batch of the GAN."""


class Temperature(nn.Module):
    """The logarithm of a temperature, a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(()))

    def forward(self) -> torch.Tensor:
        return self.value


class Sac(Workload):
    """Soft actor-critic of small nets with a learned temperature, batch 128: four nets, two followers."""

    name = "sac"
    exact = False

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.actor, self.critic_1, self.critic_2 = mlp(3, 2), mlp(4, 1), mlp(4, 1)
        self.late_1, self.late_2 = copy.deepcopy(self.critic_1), copy.deepcopy(self.critic_2)
        self.temperature = Temperature()
        self.nets = {
            "actor": self.actor,
            "critic_1": self.critic_1,
            "critic_2": self.critic_2,
            "late_critic_1": self.late_1,
            "late_critic_2": self.late_2,
            "log_temperature": self.temperature,
        }

    def batch(self, generator: torch.Generator) -> Batch:
        widths = {"state": 3, "next_state": 3, "reward": 1, "noise": 1, "next_noise": 1}
        drawn = {name: torch.randn(128, width, generator=generator) for name, width in widths.items()}
        action = torch.rand(128, 1, generator=generator) * 2 - 1
        done = torch.rand(128, 1, generator=generator).lt(0.1).to(action.dtype)
        return {**drawn, "action": action, "done": done}

    def critics(self) -> list[nn.Parameter]:
        """Return the weights of both critics."""
        return [*self.critic_1.parameters(), *self.critic_2.parameters()]

    def followers(self) -> list[nn.Parameter]:
        """Return the weights of both followers."""
        return [*self.late_1.parameters(), *self.late_2.parameters()]

    def optimizers(self) -> tuple[torch.optim.Optimizer, torch.optim.Optimizer]:
        """Return those of the expert and of the libraries: of the critics, and of the actor with the temperature."""
        acting = chain(self.actor.parameters(), self.temperature.parameters())
        return torch.optim.Adam(self.critics(), RATE, fused=True), torch.optim.Adam(acting, RATE, fused=True)

    def idiom(self) -> Step:
        opt_critics = torch.optim.Adam(self.critics(), RATE)
        opt_actor = torch.optim.Adam(self.actor.parameters(), RATE)
        opt_alpha = torch.optim.Adam(self.temperature.parameters(), RATE)
        pairs = ((self.critic_1, self.late_1), (self.critic_2, self.late_2))

        def step(batch: Batch) -> Mapping[str, Any]:
            state, alpha = batch["state"], self.temperature.value.exp().item()
            with torch.no_grad():
                next_action, next_log_p = act(self.actor, batch["next_state"], batch["next_noise"])
                next_pair = torch.cat([batch["next_state"], next_action], 1)
                worth = torch.min(self.late_1(next_pair), self.late_2(next_pair)) - alpha * next_log_p
                goal = batch["reward"] + (1 - batch["done"]) * DISCOUNT * worth
            pair = torch.cat([state, batch["action"]], 1)
            critic_loss = F.mse_loss(self.critic_1(pair), goal) + F.mse_loss(self.critic_2(pair), goal)
            opt_critics.zero_grad()
            critic_loss.backward()
            opt_critics.step()
            action, log_p = act(self.actor, state, batch["noise"])
            chosen = torch.cat([state, action], 1)
            actor_loss = (alpha * log_p - torch.min(self.critic_1(chosen), self.critic_2(chosen))).mean()
            opt_actor.zero_grad()
            actor_loss.backward()
            opt_actor.step()
            alpha_loss = (-self.temperature.value.exp() * (log_p.detach() + ENTROPY)).mean()
            opt_alpha.zero_grad()
            alpha_loss.backward()
            opt_alpha.step()
            for critic, late in pairs:
                follow_one_by_one(late.parameters(), critic.parameters(), 1 - TAU)
            return name_losses(critic_loss.item(), actor_loss.item(), alpha_loss.item())

        return step

    def expert(self) -> Step:
        opt_critics, opt_actor = self.optimizers()
        critics, followers = self.critics(), self.followers()
        pair, late = (self.critic_1, self.critic_2), (self.late_1, self.late_2)

        def step(batch: Batch) -> Mapping[str, Any]:
            critic_loss = critic_loss_of(self.actor, pair, late, self.temperature, batch)
            critic_loss.backward()
            opt_critics.step()
            opt_critics.zero_grad()
            require(critics, False)
            actor_loss, alpha_loss = actor_losses(self.actor, pair, self.temperature, batch)
            (actor_loss + alpha_loss).backward()
            opt_actor.step()
            opt_actor.zero_grad()
            require(critics, True)
            follow(followers, critics, 1 - TAU)
            return name_losses(critic_loss.detach(), actor_loss.detach(), alpha_loss.detach())

        return step


def mlp(inputs: int, outputs: int) -> nn.Sequential:
    """Return a net with two hidden layers."""
    return nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, outputs))


def act(actor: nn.Module, state: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return actions, and the logarithm of their density."""
    middle, log_spread = actor(state).chunk(2, 1)
    log_spread = log_spread.clamp(-20, 2)
    action = torch.tanh(middle + log_spread.exp() * noise)
    return action, -0.5 * noise**2 - log_spread - HALF_LOG_2PI - torch.log(1 + 1e-6 - action**2)


def critic_loss_of(
    actor: nn.Module, critics: Sequence[nn.Module], late: Sequence[nn.Module], temperature: Temperature, batch: Batch
) -> torch.Tensor:
    """Return how far both critics are from their goal: the reward, and what the followers expect."""
    with torch.no_grad():
        next_action, next_log_p = act(actor, batch["next_state"], batch["next_noise"])
        next_pair = torch.cat([batch["next_state"], next_action], 1)
        worth = torch.minimum(*(each(next_pair) for each in late)) - temperature.value.exp() * next_log_p
        goal = batch["reward"] + DISCOUNT * (1 - batch["done"]) * worth
    pair = torch.cat([batch["state"], batch["action"]], 1)
    first, second = critics
    return F.mse_loss(first(pair), goal) + F.mse_loss(second(pair), goal)


def actor_losses(
    actor: nn.Module, critics: Sequence[nn.Module], temperature: Temperature, batch: Batch
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the losses of the actor and of the temperature, whose gradients have nothing in common."""
    action, log_p = act(actor, batch["state"], batch["noise"])
    chosen = torch.cat([batch["state"], action], 1)
    alpha = temperature.value.exp()
    judged = torch.minimum(*(each(chosen) for each in critics))
    return (alpha.detach() * log_p - judged).mean(), -(alpha * (log_p.detach() + ENTROPY)).mean()


def name_losses(*losses: Any) -> dict[str, Any]:
    """Return the losses of SAC by the names that they have in the spec."""
    return dict(zip(("step_critics.loss", "step_actor.loss", "step_alpha.loss"), losses, strict=True))


BATCHES = 16
"""How many batches are taken in turn."""


def write(workload: Workload, folder: Path) -> None:
    """Write the batches of a step and the initial weights of its nets, for variants that cannot be passed them."""
    for name, net in workload.nets.items():
        save_file(net.state_dict(), folder / f"{name}.safetensors")
    batches = workload.batches(BATCHES)
    np.savez(
        folder / "data.npz", **{name: torch.cat([batch[name] for batch in batches]).numpy() for name in batches[0]}
    )


OWN = (SmallMlp, Sac)
"""The steps that no other benchmark has."""
STEPS: dict[str, type[Workload]] = {step.name: step for step in (SmallMlp, MlpGan, Sac)}
