"""A WGAN clamps the critic through .data while the generator's graph is pending; code as around wgan-gp#21."""

import torch
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
D = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
opt_g = torch.optim.RMSprop(G.parameters(), lr=5e-4)
opt_d = torch.optim.RMSprop(D.parameters(), lr=5e-4)

for _ in range(3):
    for _ in range(2):
        loss_d = D(G(torch.randn(8, 4)).detach()).mean() - D(torch.randn(8, 2)).mean()
        opt_d.zero_grad()
        loss_d.backward()
        opt_d.step()

    loss_g = -D(G(torch.randn(8, 4))).mean()
    for p in D.parameters():
        p.data.clamp_(-0.1, 0.1)  # expect: stale-read error
    opt_g.zero_grad()
    loss_g.backward()  # expect: stale-read error
    opt_g.step()
