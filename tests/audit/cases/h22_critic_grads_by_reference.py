"""The critic's gradients are kept by reference and the actor's backward adds to them; ray#65125."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
critic = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
actor_opt = torch.optim.Adam(actor.parameters(), lr=1e-3)
critic_opt = torch.optim.Adam(critic.parameters(), lr=1e-3)

for _ in range(3):
    s, a, target = torch.randn(16, 3), torch.randn(16, 2), torch.randn(16, 1)
    critic_opt.zero_grad()
    F.mse_loss(critic(torch.cat([s, a], 1)), target).backward()
    critic_grads = [p.grad for p in critic.parameters()]  # expect: grad-by-reference error

    actor_opt.zero_grad()
    (-critic(torch.cat([s, actor(s)], 1)).mean()).backward()  # expect: grad-by-reference error
    actor_grads = [p.grad for p in actor.parameters()]

    for p, g in zip([*critic.parameters(), *actor.parameters()], [*critic_grads, *actor_grads], strict=True):
        p.grad = g
    critic_opt.step()  # expect: grad-by-reference error
    actor_opt.step()
