"""Sound: TD3 with delayed policy and target updates."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.q1 = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
        self.q2 = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, s, a):
        x = torch.cat([s, a], 1)
        return self.q1(x), self.q2(x)


actor, critic = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2), nn.Tanh()), Critic()
actor_target, critic_target = copy.deepcopy(actor), copy.deepcopy(critic)
actor_optimizer = torch.optim.Adam(actor.parameters(), lr=3e-4)
critic_optimizer = torch.optim.Adam(critic.parameters(), lr=3e-4)

for it in range(4):
    s, a, r, s2 = torch.randn(16, 3), torch.rand(16, 2), torch.randn(16, 1), torch.randn(16, 3)
    with torch.no_grad():
        noise = (torch.randn_like(a) * 0.2).clamp(-0.5, 0.5)
        target_q = r + 0.99 * torch.min(*critic_target(s2, (actor_target(s2) + noise).clamp(-1, 1)))
    current_q1, current_q2 = critic(s, a)
    critic_loss = F.mse_loss(current_q1, target_q) + F.mse_loss(current_q2, target_q)
    critic_optimizer.zero_grad()
    critic_loss.backward()
    critic_optimizer.step()
    if it % 2 == 0:
        actor_loss = -critic(s, actor(s))[0].mean()
        actor_optimizer.zero_grad()
        actor_loss.backward()
        actor_optimizer.step()
        for net, target in ((critic, critic_target), (actor, actor_target)):
            for p, t in zip(net.parameters(), target.parameters(), strict=True):
                t.data.copy_(0.005 * p.data + 0.995 * t.data)
