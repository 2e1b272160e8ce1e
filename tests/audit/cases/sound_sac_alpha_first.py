"""Sound: the temperature steps before the actor's backward, which reads the saved exp(log_alpha)."""

import torch
from torch import nn

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 1))
q = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)).requires_grad_(False)
log_alpha = torch.zeros(1, requires_grad=True)
actor_opt = torch.optim.Adam(actor.parameters(), lr=3e-4)
alpha_opt = torch.optim.Adam([log_alpha], lr=3e-4)

for _ in range(3):
    s = torch.randn(16, 3)
    dist = torch.distributions.Normal(actor(s), 0.3)
    action = dist.rsample()
    log_prob = dist.log_prob(action)
    alpha = log_alpha.exp()
    actor_loss = (alpha.detach() * log_prob - q(torch.cat([s, action], 1))).mean()
    alpha_loss = -(alpha * (log_prob.detach() - 1)).mean()
    alpha_opt.zero_grad()
    alpha_loss.backward()
    alpha_opt.step()
    actor_opt.zero_grad()
    actor_loss.backward()
    actor_opt.step()
