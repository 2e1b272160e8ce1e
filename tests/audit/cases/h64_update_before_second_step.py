"""update() stands between the steps: D's gradients are divided by another scale than they were made with; neosr#31."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
D = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
opt_g = torch.optim.SGD(G.parameters(), lr=1e-2)
opt_d = torch.optim.SGD(D.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=1)

for _ in range(3):
    fake = G(torch.randn(16, 4))
    loss_g = F.softplus(-D(fake)).mean()
    loss_d = F.softplus(-D(torch.randn(16, 2))).mean() + F.softplus(D(fake.detach())).mean()
    opt_g.zero_grad()
    scaler.scale(loss_g).backward()
    opt_d.zero_grad()
    scaler.scale(loss_d).backward()
    scaler.step(opt_g)
    scaler.update()  # expect: scaler-update error
    scaler.step(opt_d)  # expect: scaler-update error
    scaler.update()
