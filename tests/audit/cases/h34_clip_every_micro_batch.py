"""The sum so far is clipped after every micro-batch instead of once before the step; catalyst#1319."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for i in range(8):
    x, y = torch.randn(8, 6), 10 * torch.randn(8, 1)
    loss = F.mse_loss(model(x), y) / 4
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # expect: clip-order warning
    if i % 4 == 3:
        optimizer.step()
        optimizer.zero_grad()
