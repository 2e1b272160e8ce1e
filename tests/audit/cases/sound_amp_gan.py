"""Sound: one scaler for two optimizers, updated once at the end."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
D = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=2e-4)
opt_d = torch.optim.Adam(D.parameters(), lr=2e-4)
scaler = torch.amp.GradScaler("cpu", init_scale=256.0)

for _ in range(3):
    real, z = torch.randn(16, 4), torch.randn(16, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        fake = G(z)
        loss_d = F.softplus(-D(real)).mean() + F.softplus(D(fake.detach())).mean()
    opt_d.zero_grad()
    scaler.scale(loss_d).backward()
    scaler.step(opt_d)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss_g = F.softplus(-D(fake)).mean()
    opt_g.zero_grad()
    scaler.scale(loss_g).backward()
    scaler.step(opt_g)
    scaler.update()
