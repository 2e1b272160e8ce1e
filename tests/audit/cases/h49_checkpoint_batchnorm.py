"""Checkpointing runs BatchNorm twice, so its statistics move twice a step; the kind of vector-quantize#221."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
block = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8))
head = nn.Linear(8, 2)
optimizer = torch.optim.Adam([*block.parameters(), *head.parameters()], lr=1e-3)

for _ in range(3):
    x, y = torch.randn(16, 8), torch.randint(2, (16,))
    h = checkpoint(block, x, use_reentrant=False)  # expect: state-per-forward warning
    loss = F.cross_entropy(head(h), y)
    optimizer.zero_grad()
    loss.backward()  # expect: state-per-forward warning
    optimizer.step()
