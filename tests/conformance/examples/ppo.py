"""PPO's passes over one batch: each goes on where the last ended, all are compared with the policy that played."""

from __future__ import annotations

from itertools import chain

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

from tests.conformance.examples.example import Example, HandLoop, Tensors

PASSES, STEPS = 6, 12


def make_net(outputs: int) -> nn.Module:
    """Return an actor or a critic."""
    hidden = [nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()]
    return nn.Sequential(*hidden, nn.Linear(64, outputs)).double()


class Passes(HandLoop):
    """One optimizer, one clip of all gradients together, and a rate that falls with every pass."""

    def __init__(self) -> None:
        self.actor, self.critic = make_net(2), make_net(1)
        self.nets = {"actor": self.actor, "critic": self.critic}
        self.weights = [*chain(self.actor.parameters(), self.critic.parameters())]
        self.optimizer = torch.optim.Adam(self.weights, lr=1e-3, eps=1e-5)
        self.falling = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.0, total_iters=PASSES * STEPS)

    def step(self, batch: Tensors, drawn: Tensors) -> Tensors:
        state, action = batch["state"], batch["action"].squeeze(1)
        advantage = batch["advantage"].squeeze(1)
        better = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
        entropies, ratios, before = [], [], self.remember(state, action)
        for _ in range(PASSES):
            policy = Categorical(logits=self.actor(state))
            ratio, entropy = (policy.log_prob(action) - before).exp(), policy.entropy().mean()
            gain = torch.min(ratio * better, ratio.clamp(0.8, 1.2) * better).mean()
            loss = 0.5 * F.mse_loss(self.critic(state), batch["goal"]) - gain - 0.01 * entropy
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.weights, 0.5)
            self.optimizer.step()
            self.falling.step()
            before = self.after_pass(before, state, action)
            entropies.append(entropy.detach())
            ratios.append(ratio.detach())
        return {"entropy": torch.stack(entropies).mean(), "apart": (torch.stack(ratios) - 1).abs().mean()}

    @torch.no_grad()
    def remember(self, state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Return the log of the chance that the policy, as it is, takes the actions."""
        return Categorical(logits=self.actor(state)).log_prob(action)

    def after_pass(self, before: torch.Tensor, state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Return what the next pass compares its policy with."""
        return before


class ComparedWithTheLast(Passes):
    """The mistake: a pass is compared with the one before it, so that nothing holds the policy where it played."""

    def after_pass(self, before: torch.Tensor, state: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return self.remember(state, action)


EXAMPLE = Example(
    name="ppo",
    loop=Passes,
    mutant=ComparedWithTheLast,
    shapes={"state": (6, 4), "advantage": (6, 1), "goal": (6, 1), "score": ()},
    classes={"action": ((6, 1), 2)},
    losses=("entropy", "apart"),
    drawn=(),
    settings=(f"ops.passes.repeat={PASSES}", f"vars.steps={STEPS}", "ops.passes.ops.step.clip={norm: 0.5, eps: 1e-6}"),
)
