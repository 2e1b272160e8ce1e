"""Sound: DDPG; the target is detached afterwards, and the critic's gradients of the actor's loss are zeroed."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 1), nn.Tanh())
critic = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
actor_target, critic_target = copy.deepcopy(actor), copy.deepcopy(critic)
actor_optim = torch.optim.Adam(actor.parameters(), lr=1e-4)
critic_optim = torch.optim.Adam(critic.parameters(), lr=1e-3, weight_decay=1e-2)

for _ in range(3):
    s, a, r, s2 = torch.randn(16, 3), torch.rand(16, 1), torch.randn(16, 1), torch.randn(16, 3)
    next_q = critic_target(torch.cat([s2, actor_target(s2)], 1)).detach()
    critic_optim.zero_grad()
    F.mse_loss(critic(torch.cat([s, a], 1)), r + 0.99 * next_q).backward()
    critic_optim.step()

    actor_optim.zero_grad()
    policy_loss = -critic(torch.cat([s, actor(s)], 1)).mean()
    policy_loss.backward()
    actor_optim.step()
    for net, target in ((actor, actor_target), (critic, critic_target)):
        for p, t in zip(net.parameters(), target.parameters(), strict=True):
            t.data.copy_(t.data * 0.999 + p.data * 0.001)
