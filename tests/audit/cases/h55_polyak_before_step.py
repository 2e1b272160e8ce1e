"""DDPG moves the target critic before the critic's own step; the kind of DDGCL#5."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Agent:
    def __init__(self):
        self.critic = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
        self.critic_target = copy.deepcopy(self.critic)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=1e-3)

    def soft_update(self, tau=0.005):
        with torch.no_grad():
            for t, s in zip(self.critic_target.parameters(), self.critic.parameters(), strict=True):
                t.lerp_(s, tau)  # expect: ema-order warning

    def learn(self, sa, reward, next_sa):
        with torch.no_grad():
            y = reward + 0.99 * self.critic_target(next_sa)
        loss = F.mse_loss(self.critic(sa), y)
        self.critic_optimizer.zero_grad()
        loss.backward()
        self.soft_update()  # expect: ema-order warning
        self.critic_optimizer.step()


agent = Agent()
for _ in range(3):
    agent.learn(torch.randn(16, 4), torch.randn(16, 1), torch.randn(16, 4))
