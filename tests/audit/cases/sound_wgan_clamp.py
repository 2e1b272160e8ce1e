"""Sound: WGAN's weights are clamped through .data after the critic's step, while no graph is pending."""

import torch
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
D = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
opt_g = torch.optim.RMSprop(G.parameters(), lr=5e-5)
opt_d = torch.optim.RMSprop(D.parameters(), lr=5e-5)

for _ in range(3):
    for _ in range(2):
        opt_d.zero_grad()
        loss_d = -D(torch.randn(16, 4)).mean() + D(G(torch.randn(16, 8)).detach()).mean()
        loss_d.backward()
        opt_d.step()
        for p in D.parameters():
            p.data.clamp_(-0.01, 0.01)
    opt_g.zero_grad()
    loss_g = -D(G(torch.randn(16, 8))).mean()
    loss_g.backward()
    opt_g.step()
