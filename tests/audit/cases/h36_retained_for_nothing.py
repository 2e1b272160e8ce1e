"""retain_graph=True on every backward, though no second one reads the graph; DeblurGANv2#19."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
D = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3)
opt_d = torch.optim.Adam(D.parameters(), lr=1e-3)

for _ in range(3):
    fake = G(torch.randn(8, 6))
    loss_d = F.softplus(-D(torch.randn(8, 4))).mean() + F.softplus(D(fake.detach())).mean()
    opt_d.zero_grad()
    loss_d.backward(retain_graph=True)  # expect: needless-retain waste
    opt_d.step()
    loss_g = F.softplus(-D(fake)).mean()
    opt_g.zero_grad()
    loss_g.backward(retain_graph=True)  # expect: needless-retain waste
    opt_g.step()
