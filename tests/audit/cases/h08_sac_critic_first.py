"""SAC computes both losses and updates the critic first, which the actor's backward reads; pg-is-all-you-need#30."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2), nn.Tanh())
q_net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
q_target = copy.deepcopy(q_net)
policy_opt = torch.optim.Adam(policy.parameters(), lr=3e-4)
q_opt = torch.optim.Adam(q_net.parameters(), lr=3e-4)


def update(s, a, r, s2):
    with torch.no_grad():
        target = r + 0.99 * q_target(torch.cat([s2, policy(s2)], dim=1))
    q_loss = F.mse_loss(q_net(torch.cat([s, a], dim=1)), target)
    policy_loss = -q_net(torch.cat([s, policy(s)], dim=1)).mean()
    for opt, loss in ((q_opt, q_loss), (policy_opt, policy_loss)):
        opt.zero_grad()
        loss.backward()  # expect: stale-read error # raises: RuntimeError
        opt.step()  # expect: stale-read error
    with torch.no_grad():
        for slow, fast in zip(q_target.parameters(), q_net.parameters(), strict=True):
            slow.lerp_(fast, 0.005)


for _ in range(3):
    update(torch.randn(16, 4), torch.rand(16, 2), torch.randn(16, 1), torch.randn(16, 4))
