"""The gradient penalty is made without create_graph: it is logged and trains nothing; stylegan2-pytorch#32."""

import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(4, 16), nn.ELU(), nn.Linear(16, 1))
generator = nn.Sequential(nn.Linear(6, 16), nn.ELU(), nn.Linear(16, 4))
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))


def gradient_penalty(real, fake):
    t = torch.rand(len(real), 1)
    mixed = (t * real + (1 - t) * fake).requires_grad_(True)
    score = critic(mixed)
    (grad,) = torch.autograd.grad(score.sum(), mixed, retain_graph=True)  # expect: dead-term error
    return (grad.norm(dim=1) - 1).square().mean()


for _ in range(3):
    real, fake = torch.randn(16, 4), generator(torch.randn(16, 6)).detach()
    gp = gradient_penalty(real, fake)
    loss = critic(fake).mean() - critic(real).mean() + 10 * gp  # expect: dead-term error
    optimizer.zero_grad()
    loss.backward()  # expect: dead-term error
    optimizer.step()
