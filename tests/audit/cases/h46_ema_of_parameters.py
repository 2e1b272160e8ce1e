"""The average covers parameters only: its BatchNorm keeps the statistics of the start; CuriousAI/mean-teacher#9."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
ema_model = copy.deepcopy(model).requires_grad_(False)
ema_model.eval()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def update_ema(decay=0.9):
    for slow, fast in zip(ema_model.parameters(), model.parameters(), strict=True):
        slow.data.mul_(decay).add_(fast.data, alpha=1 - decay)  # expect: ema-without-buffers warning


for _ in range(3):
    x, y = 2 + torch.randn(32, 6), torch.randint(2, (32,))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    update_ema()  # expect: ema-without-buffers warning
print("accuracy of the average", (ema_model(x).argmax(1) == y).float().mean().item())
