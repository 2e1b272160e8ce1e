"""TD3 with its delayed actor and targets, and soft actor-critic with all losses computed up front."""

from __future__ import annotations

import copy
from itertools import chain

import torch
import torch.nn.functional as F
from torch import nn

from tests.conformance.case import Case, Loop, MakeOptimizer, Tensors

TD3 = """
graphspec: 1
name: td3
inputs:
  state: {shape: [batch, 5]}
  action: {shape: [batch, 2]}
  reward: {shape: [batch, 1]}
  next_state: {shape: [batch, 5]}
  done: {shape: [batch, 1]}
  noise: {shape: [batch, 2]}
models:
  actor: {layers: [{linear: 8}, relu, {linear: 2}, tanh], optimizer: OPTIMIZER}
  critic_1: {layers: [{linear: 8}, relu, {linear: 1}]}
  critic_2: {like: critic_1, init: fresh}
  late_actor: {like: actor}
  late_critic_1: {like: critic_1}
  late_critic_2: {like: critic_2}
outputs: [critic_loss, q_1]
ops:
  clipped: {call: clip, inputs: noise, args: {min: -0.5, max: 0.5}}
  proposed: {forward: late_actor, inputs: next_state}
  moved: {call: add, inputs: [proposed, clipped]}
  next_action: {call: clip, inputs: moved, args: {min: -1.0, max: 1.0}}
  next_pair: {call: concat, inputs: [next_state, next_action]}
  next_1: {forward: late_critic_1, inputs: next_pair}
  next_2: {forward: late_critic_2, inputs: next_pair}
  twins: {call: stack, inputs: [next_1, next_2]}
  worth: {call: min, inputs: twins, args: {axis: 0}}
  goes_on: {call: sub, inputs: [1.0, done]}
  later: {call: mul, inputs: [goes_on, worth, 0.99]}
  target: {call: add, inputs: [reward, later]}
  pair: {call: concat, inputs: [state, action]}
  q_1: {forward: critic_1, inputs: pair}
  q_2: {forward: critic_2, inputs: pair}
  error_1: {loss: mse, inputs: [q_1, target]}
  error_2: {loss: mse, inputs: [q_2, target]}
  critic_loss: {call: add, inputs: [error_1, error_2]}
  chosen: {forward: actor, inputs: state}
  chosen_pair: {call: concat, inputs: [state, chosen]}
  judged: {forward: critic_1, inputs: chosen_pair, after: step_q}
  mean_value: {call: mean, inputs: judged}
  actor_loss: {call: neg, inputs: mean_value}
  follow_pi: {ema: actor, into: late_actor, tau: 0.1, every: step_pi}
  follow_1: {ema: critic_1, into: late_critic_1, tau: 0.1, every: step_pi}
  follow_2: {ema: critic_2, into: late_critic_2, tau: 0.1, every: step_pi}
  step_q: {update: [critic_1, critic_2], loss: critic_loss, optimizer: OPTIMIZER}
  step_pi: {update: actor, loss: actor_loss, every: 2}
"""

SAC = """
graphspec: 1
name: sac
inputs:
  state: {shape: [batch, 5]}
  action: {shape: [batch, 2]}
  target: {shape: [batch, 1]}
  noise: {shape: [batch, 2]}
models:
  policy: {layers: [{linear: 8}, relu, {linear: 4}], optimizer: OPTIMIZER}
  critic: {layers: [{linear: 8}, relu, {linear: 1}], optimizer: OPTIMIZER}
outputs: [critic_loss, policy_loss]
ops:
  pair: {call: concat, inputs: [state, action]}
  q: {forward: critic, inputs: pair}
  critic_loss: {loss: mse, inputs: [q, target]}
  described: {forward: policy, inputs: state}
  parts: {call: split, inputs: described, args: {sections: 2}, outputs: [middle, log_spread]}
  spread: {call: exp, inputs: log_spread}
  deviation: {call: mul, inputs: [spread, noise]}
  raw: {call: add, inputs: [middle, deviation]}
  chosen: {call: tanh, inputs: raw}
  chosen_pair: {call: concat, inputs: [state, chosen]}
  judged: {forward: critic, inputs: chosen_pair, after: []}
  value: {call: mean, inputs: judged}
  entropy: {call: mean, inputs: log_spread}
  bonus: {call: mul, inputs: [entropy, 0.2]}
  gain: {call: add, inputs: [value, bonus]}
  policy_loss: {call: neg, inputs: gain}
  step_q: {update: critic, loss: critic_loss}
  step_pi: {update: policy, loss: policy_loss}
"""


def mlp(inputs: int, outputs: int, *more: nn.Module) -> nn.Sequential:
    """Return a net with one hidden layer."""
    return nn.Sequential(nn.Linear(inputs, 8), nn.ReLU(), nn.Linear(8, outputs), *more).double()


class TwinDelayed(Loop):
    """TD3: every second step the actor moves and the three targets follow."""

    def __init__(self, make: MakeOptimizer) -> None:
        torch.manual_seed(0)
        self.live = {"actor": mlp(5, 2, nn.Tanh()), "critic_1": mlp(7, 1), "critic_2": mlp(7, 1)}
        self.late = copy.deepcopy(self.live)
        self.nets = self.live | {f"late_{name}": net for name, net in self.late.items()}
        self.opt_pi = make(self.live["actor"].parameters())
        self.opt_q = make(chain(self.live["critic_1"].parameters(), self.live["critic_2"].parameters()))
        self.steps = 0

    def step(self, *, state: torch.Tensor, action: torch.Tensor, **rest: torch.Tensor) -> Tensors:
        self.steps += 1
        target = self.target(**rest)
        q_1, q_2 = (self.live[name](torch.cat([state, action], 1)) for name in ("critic_1", "critic_2"))
        loss = F.mse_loss(q_1, target) + F.mse_loss(q_2, target)
        self.opt_q.zero_grad()
        loss.backward()
        self.learn(state)
        return {"critic_loss": loss.detach(), "q_1": q_1.detach()}

    @torch.no_grad()
    def target(
        self, reward: torch.Tensor, next_state: torch.Tensor, done: torch.Tensor, noise: torch.Tensor
    ) -> torch.Tensor:
        action = (self.late["actor"](next_state) + noise.clamp(-0.5, 0.5)).clamp(-1, 1)
        pair = torch.cat([next_state, action], 1)
        return reward + (1 - done) * 0.99 * torch.minimum(self.late["critic_1"](pair), self.late["critic_2"](pair))

    def learn(self, state: torch.Tensor) -> None:
        self.opt_q.step()
        if self.steps % 2 == 0:
            self.move_actor(state)
            self.follow()

    def move_actor(self, state: torch.Tensor) -> None:
        self.opt_pi.zero_grad()
        loss = -self.live["critic_1"](torch.cat([state, self.live["actor"](state)], 1)).mean()
        loss.backward(inputs=list(self.live["actor"].parameters()))
        self.opt_pi.step()

    @torch.no_grad()
    def follow(self) -> None:
        for name, net in self.live.items():
            for old, new in zip(self.late[name].parameters(), net.parameters(), strict=True):
                old.mul_(0.9).add_(new, alpha=0.1)


class EarlyActor(TwinDelayed):
    """The mistake: the actor is judged by the critic as it was before its update."""

    def learn(self, state: torch.Tensor) -> None:
        if self.steps % 2 == 0:
            self.move_actor(state)
        self.opt_q.step()
        if self.steps % 2 == 0:
            self.follow()


class AllLosses(Loop):
    """Soft actor-critic as it is often written: all losses first, then all gradients, then all steps."""

    def __init__(self, make: MakeOptimizer) -> None:
        torch.manual_seed(0)
        self.policy, self.critic = mlp(5, 4), mlp(7, 1)
        self.nets = {"policy": self.policy, "critic": self.critic}
        self.opt_pi, self.opt_q = make(self.policy.parameters()), make(self.critic.parameters())

    def step(self, state: torch.Tensor, action: torch.Tensor, target: torch.Tensor, noise: torch.Tensor) -> Tensors:
        critic_loss = F.mse_loss(self.critic(torch.cat([state, action], 1)), target)
        policy_loss = self.policy_loss(state, noise)
        self.opt_q.zero_grad()
        self.opt_pi.zero_grad()
        policy_loss.backward(inputs=list(self.policy.parameters()))
        critic_loss.backward()
        self.opt_q.step()
        self.opt_pi.step()
        return {"critic_loss": critic_loss.detach(), "policy_loss": policy_loss.detach()}

    def policy_loss(self, state: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        middle, log_spread = self.policy(state).chunk(2, 1)
        chosen = torch.tanh(middle + log_spread.exp() * noise)
        return -(self.critic(torch.cat([state, chosen], 1)).mean() + 0.2 * log_spread.mean())


class CriticFirst(AllLosses):
    """The mistake: the policy is judged by the critic after its update."""

    def step(self, state: torch.Tensor, action: torch.Tensor, target: torch.Tensor, noise: torch.Tensor) -> Tensors:
        critic_loss = F.mse_loss(self.critic(torch.cat([state, action], 1)), target)
        self.opt_q.zero_grad()
        critic_loss.backward()
        self.opt_q.step()
        self.opt_pi.zero_grad()
        policy_loss = self.policy_loss(state, noise)
        policy_loss.backward(inputs=list(self.policy.parameters()))
        self.opt_pi.step()
        return {"critic_loss": critic_loss.detach(), "policy_loss": policy_loss.detach()}


SIZES = {"state": (6, 5), "action": (6, 2), "noise": (6, 2)}
TD3_SHAPES = {**SIZES, "reward": (6, 1), "next_state": (6, 5), "done": (6, 1)}
SAC_SHAPES = {**SIZES, "target": (6, 1)}
CRITIC_FIRST, ACTOR_FIRST = ("step_q", "step_pi"), ("step_pi", "step_q")


def td3(name: str, updates: tuple[str, ...]) -> Case:
    """Return TD3: `after: step_q` puts the critics first in any listing, and nothing has to wait."""
    return Case(name=name, text=TD3, updates=updates, loop=TwinDelayed, mutant=EarlyActor, shapes=TD3_SHAPES)


def sac(name: str, updates: tuple[str, ...], *, listed: frozenset[str] = frozenset()) -> Case:
    """Return SAC with all losses up front: the critic waits if its gradient is taken first."""
    return Case(
        name=name, text=SAC, updates=updates, loop=AllLosses, mutant=CriticFirst, shapes=SAC_SHAPES, listed=listed
    )


CASES = (
    td3("td3, critics first", CRITIC_FIRST),
    td3("td3, actor first", ACTOR_FIRST),
    sac("sac, critic first", CRITIC_FIRST, listed=frozenset({"step_q"})),
    sac("sac, policy first", ACTOR_FIRST),
)
