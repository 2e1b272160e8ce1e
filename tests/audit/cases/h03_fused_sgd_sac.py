"""SAC with all losses first, critic updated first, fused SGD: no error and a wrong actor gradient; tianshou#37."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2), nn.Tanh())
critic = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
actor_optim = torch.optim.SGD(actor.parameters(), lr=0.05, fused=True)
critic_optim = torch.optim.SGD(critic.parameters(), lr=0.05, fused=True)

for _ in range(3):
    state, action, returns = torch.randn(32, 3), torch.rand(32, 2) * 2 - 1, torch.randn(32, 1)
    critic_loss = F.mse_loss(critic(torch.cat([state, action], 1)), returns)
    actor_loss = -critic(torch.cat([state, actor(state)], 1)).mean()

    critic_optim.zero_grad()
    critic_loss.backward()
    critic_optim.step()  # expect: stale-read error

    actor_optim.zero_grad()
    actor_loss.backward()  # expect: stale-read error
    actor_optim.step()
