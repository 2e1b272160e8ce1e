"""One norm over the gradients of G and D, so the large one of D shrinks G's step; ocannl#673."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
D = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
opt_g = torch.optim.SGD(G.parameters(), lr=1e-2)
opt_d = torch.optim.SGD(D.parameters(), lr=1e-2)

for _ in range(3):
    fake = G(torch.randn(16, 6))
    loss_g = 0.01 * F.softplus(-D(fake)).mean()
    opt_g.zero_grad()
    loss_g.backward()
    loss_d = 50 * (F.softplus(-D(torch.randn(16, 4))).mean() + F.softplus(D(fake.detach())).mean())
    opt_d.zero_grad()
    loss_d.backward()
    torch.nn.utils.clip_grad_norm_([*G.parameters(), *D.parameters()], 1.0)  # expect: clip-scope warning
    opt_g.step()
    opt_d.step()
