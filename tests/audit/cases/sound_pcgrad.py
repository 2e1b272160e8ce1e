"""Sound: PCGrad; every task's gradient is cloned before the next backward, and the projected sum is put into .grad."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
trunk, heads = nn.Sequential(nn.Linear(4, 16), nn.ReLU()), nn.ModuleList(nn.Linear(16, 1) for _ in range(2))
optimizer = torch.optim.Adam([*trunk.parameters(), *heads.parameters()], lr=1e-3)
shared = list(trunk.parameters())

for _ in range(3):
    x, targets = torch.randn(16, 4), torch.randn(2, 16, 1)
    optimizer.zero_grad()
    h, grads = trunk(x), []
    for i, head in enumerate(heads):
        F.mse_loss(head(h), targets[i]).backward(retain_graph=i == 0)
        grads.append(torch.cat([p.grad.clone().flatten() for p in shared]))
        for p in shared:
            p.grad = None
    one, two = grads
    dot = one @ two
    if dot < 0:
        one, two = one - dot / two.square().sum() * two, two - dot / one.square().sum() * one
    total, at = one + two, 0
    for p in shared:
        p.grad = total[at : at + p.numel()].view_as(p).clone()
        at += p.numel()
    optimizer.step()
