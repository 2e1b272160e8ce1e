"""Sound: WGAN-GP with several critic steps; the second derivative runs through create_graph."""

import torch
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
D = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=1e-4, betas=(0.0, 0.9))
opt_d = torch.optim.Adam(D.parameters(), lr=1e-4, betas=(0.0, 0.9))


def penalty(real, fake):
    t = torch.rand(len(real), 1)
    mixed = (t * real + (1 - t) * fake).requires_grad_(True)
    score = D(mixed)
    (grad,) = torch.autograd.grad(score, mixed, torch.ones_like(score), create_graph=True)
    return (grad.norm(2, dim=1) - 1).square().mean()


for _ in range(3):
    for _ in range(2):
        real = torch.randn(16, 4)
        with torch.no_grad():
            fake = G(torch.randn(16, 8))
        loss_d = D(fake).mean() - D(real).mean() + 10 * penalty(real, fake)
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()
    for p in D.parameters():
        p.requires_grad_(False)
    loss_g = -D(G(torch.randn(16, 8))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    for p in D.parameters():
        p.requires_grad_(True)
