"""The temperature of h18 with a fused optimizer: the actor's gradient mixes two temperatures; mimoralea/gdrl#13."""

import torch
from torch import nn

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
log_alpha = nn.Parameter(torch.tensor(0.5))
actor_opt = torch.optim.Adam(actor.parameters(), lr=1e-3, fused=True)
alpha_opt = torch.optim.Adam([log_alpha], lr=0.1, fused=True)

for _ in range(3):
    obs = torch.randn(16, 3)
    dist = torch.distributions.Normal(actor(obs), 0.5)
    action = dist.rsample()
    entropy_term = log_alpha * dist.log_prob(action)
    actor_loss = (entropy_term + action.square()).mean()
    alpha_loss = -(log_alpha * (dist.log_prob(action) + 1).detach()).mean()
    alpha_opt.zero_grad()
    alpha_loss.backward()
    alpha_opt.step()  # expect: stale-read error
    actor_opt.zero_grad()
    actor_loss.backward(inputs=list(actor.parameters()))  # expect: stale-read error
    actor_opt.step()
