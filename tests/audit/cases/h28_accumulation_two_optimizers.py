"""D collects lossG of every micro-batch between its own zero_grad and step; OmniTokenizer#15."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
D = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3)
opt_d = torch.optim.Adam(D.parameters(), lr=1e-3)
ACCUMULATE = 2

for i in range(6):
    real, fake = torch.randn(8, 4), G(torch.randn(8, 6))
    (F.softplus(-D(fake)).mean() / ACCUMULATE).backward()  # expect: leftover-grad error
    loss_d = F.softplus(-D(real)).mean() + F.softplus(D(fake.detach())).mean()
    (loss_d / ACCUMULATE).backward()
    if (i + 1) % ACCUMULATE == 0:
        opt_g.step()
        opt_d.step()  # expect: leftover-grad error
        opt_g.zero_grad()
        opt_d.zero_grad()
