"""Sound: SAC with twin critics, a learned temperature, and the order critic, actor, temperature, targets."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 4))
q1, q2 = (nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1)) for _ in range(2))
q1_target, q2_target = copy.deepcopy(q1), copy.deepcopy(q2)
log_alpha = torch.zeros(1, requires_grad=True)
actor_opt = torch.optim.Adam(actor.parameters(), lr=3e-4)
q_opt = torch.optim.Adam([*q1.parameters(), *q2.parameters()], lr=3e-4)
alpha_opt = torch.optim.Adam([log_alpha], lr=3e-4)


def sample(s):
    mean, log_std = actor(s).chunk(2, dim=1)
    dist = torch.distributions.Normal(mean, log_std.clamp(-5, 2).exp())
    u = dist.rsample()
    log_prob = dist.log_prob(u) - 2 * (0.693 - u - F.softplus(-2 * u))
    return u.tanh(), log_prob.sum(dim=1, keepdim=True)


for _ in range(3):
    s, a, r, s2 = torch.randn(16, 3), torch.rand(16, 2), torch.randn(16, 1), torch.randn(16, 3)
    with torch.no_grad():
        a2, logp2 = sample(s2)
        sa2 = torch.cat([s2, a2], 1)
        y = r + 0.99 * (torch.min(q1_target(sa2), q2_target(sa2)) - log_alpha.exp() * logp2)
    sa = torch.cat([s, a], 1)
    q_loss = F.mse_loss(q1(sa), y) + F.mse_loss(q2(sa), y)
    q_opt.zero_grad()
    q_loss.backward()
    q_opt.step()
    pi, logp = sample(s)
    spi = torch.cat([s, pi], 1)
    actor_loss = (log_alpha.exp().detach() * logp - torch.min(q1(spi), q2(spi))).mean()
    actor_opt.zero_grad()
    actor_loss.backward()
    actor_opt.step()
    alpha_loss = -(log_alpha * (logp.detach() - 2)).mean()
    alpha_opt.zero_grad()
    alpha_loss.backward()
    alpha_opt.step()
    for fast, slow in ((q1, q1_target), (q2, q2_target)):
        for p, t in zip(fast.parameters(), slow.parameters(), strict=True):
            t.data.mul_(0.995).add_(p.data, alpha=0.005)
