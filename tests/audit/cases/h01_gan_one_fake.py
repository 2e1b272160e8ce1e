"""A GAN step that shares D(G(z)) between both losses and updates D before G's backward; pytorch/pytorch#39141."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
discriminator = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
opt_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
ones, zeros = torch.ones(16, 1), torch.zeros(16, 1)

for _ in range(3):
    real = torch.randn(16, 4) + 1
    fake = generator(torch.randn(16, 8))
    score = discriminator(fake)
    loss_d = F.binary_cross_entropy_with_logits(discriminator(real), ones)
    loss_d = loss_d + F.binary_cross_entropy_with_logits(score, zeros)
    loss_g = F.binary_cross_entropy_with_logits(score, ones)

    opt_d.zero_grad()
    loss_d.backward(retain_graph=True)
    opt_d.step()  # expect: stale-read error

    opt_g.zero_grad()
    loss_g.backward()  # expect: stale-read error # raises: RuntimeError
    opt_g.step()
