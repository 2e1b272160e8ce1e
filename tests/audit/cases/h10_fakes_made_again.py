"""D trains on fakes that the updated G makes again from the same noise; pytorch-CycleGAN-and-pix2pix#718."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
D = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3)
opt_d = torch.optim.Adam(D.parameters(), lr=1e-3)

for _ in range(3):
    x, real = torch.randn(16, 8), torch.randn(16, 4)
    loss_g = F.softplus(-D(G(x))).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()

    with torch.no_grad():
        fake = G(x)  # expect: other-version question
    loss_d = F.softplus(-D(real)).mean() + F.softplus(D(fake)).mean()
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()
