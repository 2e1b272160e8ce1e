"""Fused SGD makes its momentum in a step that is skipped, and takes what was in that memory for one; libreyolo#771."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)

for _ in range(4):
    x, y = torch.randn(16, 6), 10 * torch.randn(16, 1)
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)  # expect: fused-skip error
    scaler.update()
