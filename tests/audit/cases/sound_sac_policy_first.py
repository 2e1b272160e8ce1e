"""Sound: SAC with both losses up front; the policy steps first, which the critic's backward does not read."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
critic = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
policy_opt = torch.optim.Adam(policy.parameters(), lr=3e-4, fused=True)
critic_opt = torch.optim.Adam(critic.parameters(), lr=3e-4, fused=True)

for _ in range(3):
    s, a, y = torch.randn(16, 3), torch.randn(16, 2), torch.randn(16, 1)
    critic_loss = F.mse_loss(critic(torch.cat([s, a], 1)), y)
    policy_loss = -critic(torch.cat([s, policy(s)], 1)).mean()
    policy_opt.zero_grad()
    policy_loss.backward()
    policy_opt.step()
    critic_opt.zero_grad()
    critic_loss.backward()
    critic_opt.step()
