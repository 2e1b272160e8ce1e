"""backward runs on the loss itself; the scaler's step divides gradients that were never scaled; apex#1512's kind."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

for _ in range(3):
    x, y = torch.randn(16, 6), torch.randint(2, (16,))
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    scaler.scale(loss)
    loss.backward()  # expect: unscaled-loss error
    scaler.step(optimizer)  # expect: unscaled-loss error
    scaler.update()
