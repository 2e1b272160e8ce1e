"""The gradients are clipped before backward makes new ones: it acts on those of the last step; mine-pytorch#8."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.ELU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for _ in range(3):
    x, y = torch.randn(32, 6), torch.randn(32, 1)
    loss = F.mse_loss(model(x), y)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)  # expect: clip-order error
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
