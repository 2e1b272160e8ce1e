"""The scheduler counts a step that the scaler skipped: the first real one has half the rate; MPL-pytorch#38."""

import warnings

import torch
import torch.nn.functional as F
from torch import nn

warnings.filterwarnings("ignore")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**125)

for _ in range(4):
    x, y = torch.randn(16, 6), 10 * torch.randn(16, 1)
    optimizer.zero_grad()
    scaler.scale(F.mse_loss(model(x), y)).backward()
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()  # expect: schedule-clock warning
