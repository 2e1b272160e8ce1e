"""Copy and paste: the discriminator's gradients are followed by the generator's step; the kind of Lightning#603."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
D = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
opt_g = torch.optim.SGD(G.parameters(), lr=1e-2)
opt_d = torch.optim.SGD(D.parameters(), lr=1e-2)

for _ in range(3):
    fake = G(torch.randn(16, 4))
    opt_g.zero_grad()
    F.softplus(-D(fake)).mean().backward()
    opt_g.step()

    opt_d.zero_grad()
    loss_d = F.softplus(-D(torch.randn(16, 2))).mean() + F.softplus(D(fake.detach())).mean()
    loss_d.backward()  # expect: untrained error
    opt_g.step()  # expect: untrained error
