"""G's backward fills D's gradients and D's step applies them too; pytorch-lightning#591."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
D = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=2e-4)
opt_d = torch.optim.Adam(D.parameters(), lr=2e-4)

for _ in range(3):
    real, fake = torch.randn(16, 4), G(torch.randn(16, 8))
    loss_g = F.softplus(-D(fake)).mean()
    loss_g.backward()  # expect: leftover-grad error
    opt_g.step()
    opt_g.zero_grad()

    loss_d = F.softplus(-D(real)).mean() + F.softplus(D(fake.detach())).mean()
    loss_d.backward()
    opt_d.step()  # expect: leftover-grad error
    opt_d.zero_grad()
