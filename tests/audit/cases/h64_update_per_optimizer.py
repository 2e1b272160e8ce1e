"""The scaler is updated after each of two optimizers, so its scale grows and shrinks twice a step; accelerate#439."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
D = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=1e-3)
opt_d = torch.optim.Adam(D.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=4)

for _ in range(4):
    fake = G(torch.randn(16, 4))
    opt_d.zero_grad()
    loss_d = F.softplus(-D(torch.randn(16, 2))).mean() + F.softplus(D(fake.detach())).mean()
    scaler.scale(loss_d).backward()
    scaler.step(opt_d)
    scaler.update()  # expect: scaler-update warning

    opt_g.zero_grad()
    scaler.scale(F.softplus(-D(fake)).mean()).backward()
    scaler.step(opt_g)
    scaler.update()  # expect: scaler-update warning
