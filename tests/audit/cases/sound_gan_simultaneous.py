"""Sound: a simultaneous GAN step over one D(G(z)); both gradients are made before either update."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
D = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
opt_g = torch.optim.Adam(G.parameters(), lr=2e-4)
opt_d = torch.optim.Adam(D.parameters(), lr=2e-4)

for _ in range(3):
    real = torch.randn(16, 4)
    score = D(G(torch.randn(16, 8)))
    loss_d = F.softplus(-D(real)).mean() + F.softplus(score).mean()
    loss_g = F.softplus(-score).mean()
    opt_d.zero_grad()
    opt_g.zero_grad()
    loss_d.backward(retain_graph=True, inputs=list(D.parameters()))
    loss_g.backward(inputs=list(G.parameters()))
    opt_g.step()
    opt_d.step()
