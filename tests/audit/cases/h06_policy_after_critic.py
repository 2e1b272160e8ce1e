"""D(fake) is made again after D's update to silence an error: alternating now; soft-actor-critic.pytorch#1."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
D = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
opt_g = torch.optim.SGD(G.parameters(), lr=0.05)
opt_d = torch.optim.SGD(D.parameters(), lr=0.05)

for _ in range(3):
    real, fake = torch.randn(16, 4), G(torch.randn(16, 8))
    score = D(fake)
    loss_d = F.softplus(-D(real)).mean() + F.softplus(D(fake.detach())).mean()
    print("confidence in fakes", score.sigmoid().mean().item())
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()

    score = D(fake)  # expect: other-version question
    loss_g = F.softplus(-score).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
