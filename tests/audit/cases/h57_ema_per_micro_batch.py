"""The average moves with every micro-batch although the weights move every fourth; F5-TTS#631."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.SiLU(), nn.Linear(16, 6))
ema = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
accumulate = 4

for i in range(8):
    x = torch.randn(8, 6)
    loss = F.mse_loss(model(x + torch.randn_like(x)), x) / accumulate
    loss.backward()
    if (i + 1) % accumulate == 0:
        optimizer.step()
        optimizer.zero_grad()
    for e, p in zip(ema.parameters(), model.parameters(), strict=True):
        e.data.lerp_(p.data, 0.01)  # expect: ema-clock warning
