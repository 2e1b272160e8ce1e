"""D pauses every other step, but its optimizer steps with zero gradients and momentum; OpenPCDet#845."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
D = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
opt_g = torch.optim.SGD(G.parameters(), lr=0.05, momentum=0.9)
opt_d = torch.optim.SGD(D.parameters(), lr=0.05, momentum=0.9)

for step in range(4):
    real, fake = torch.randn(16, 2), G(torch.randn(16, 4))
    opt_d.zero_grad(set_to_none=False)
    if step % 2 == 0:
        loss_d = F.softplus(-D(real)).mean() + F.softplus(D(fake.detach())).mean()
        loss_d.backward()
    opt_d.step()  # expect: frozen-moves error

    loss_g = F.softplus(-D(fake)).mean()
    for p, g in zip(G.parameters(), torch.autograd.grad(loss_g, list(G.parameters())), strict=True):
        p.grad = g
    opt_g.step()
