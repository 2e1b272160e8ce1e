"""BYOL's target is averaged without buffers and runs in eval mode, on statistics that never move; byol-pytorch#73."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
online = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8))
predictor = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
target = copy.deepcopy(online)
target.eval()
optimizer = torch.optim.Adam([*online.parameters(), *predictor.parameters()], lr=1e-3)

for _ in range(3):
    x = 3 + torch.randn(32, 8)
    a, b = x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)
    with torch.no_grad():
        goal = F.normalize(target(b), dim=1)
    loss = 2 - 2 * (F.normalize(predictor(online(a)), dim=1) * goal).sum(dim=1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for t, o in zip(target.parameters(), online.parameters(), strict=True):
            t.copy_(0.99 * t + 0.01 * o)  # expect: ema-without-buffers warning
