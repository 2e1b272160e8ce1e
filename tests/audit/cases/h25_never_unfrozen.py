"""D is frozen for G's step and never unfrozen; its loss runs through the undetached fake; Lightning#603."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
D = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3)
opt_d = torch.optim.Adam(D.parameters(), lr=1e-3)

for _ in range(3):
    fake = G(torch.randn(16, 4))
    D.requires_grad_(False)  # expect: untrained error
    loss_g = F.softplus(-D(fake)).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()

    fake = G(torch.randn(16, 4))
    loss_d = F.softplus(-D(torch.randn(16, 2))).mean() + F.softplus(D(fake)).mean()
    opt_d.zero_grad()
    loss_d.backward()  # expect: untrained error
    opt_d.step()  # expect: untrained error
