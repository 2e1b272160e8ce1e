"""A train forward of BatchNorm moves the statistics that a waiting graph of its eval forward reads; pytorch#13402."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
D = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3)
opt_d = torch.optim.Adam(D.parameters(), lr=1e-3)

for _ in range(3):
    fake = G(torch.randn(16, 6))
    D.eval()
    loss_g = F.softplus(-D(fake)).mean()
    D.train()
    loss_d = F.softplus(-D(3 * torch.randn(16, 4))).mean()  # expect: stale-statistics error
    loss_d = loss_d + F.softplus(D(fake.detach())).mean()  # expect: stale-statistics error

    opt_g.zero_grad()
    loss_g.backward()  # expect: stale-statistics error
    opt_g.step()
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()
