"""SAC's temperature steps before the actor's backward, whose loss multiplies by log_alpha itself; mimoralea/gdrl#13."""

import torch
from torch import nn

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
q = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
log_alpha = torch.ones(1, requires_grad=True)
actor_opt = torch.optim.Adam(actor.parameters(), lr=1e-3)
alpha_opt = torch.optim.Adam([log_alpha], lr=1e-2)

for _ in range(3):
    obs = torch.randn(16, 3)
    mean, log_std = actor(obs).chunk(2, dim=1)
    dist = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
    action = dist.rsample()
    log_prob = dist.log_prob(action)
    policy_loss = (log_alpha * log_prob - q(torch.cat([obs, action], 1))).mean()
    alpha_loss = -(log_alpha * (log_prob.detach() - 1)).mean()

    alpha_opt.zero_grad()
    alpha_loss.backward()
    alpha_opt.step()  # expect: stale-read error

    actor_opt.zero_grad()
    policy_loss.backward()  # expect: stale-read error # raises: RuntimeError
    actor_opt.step()
