"""Gradient surgery keeps p.grad, which zero_grad(set_to_none=False) zeroes; the kind of ray#65125."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
trunk = nn.Sequential(nn.Linear(4, 16), nn.ReLU())
heads = nn.ModuleList([nn.Linear(16, 1), nn.Linear(16, 1)])
optimizer = torch.optim.SGD([*trunk.parameters(), *heads.parameters()], lr=0.1)
shared = list(trunk.parameters())

for _ in range(3):
    x, targets = torch.randn(16, 4), torch.randn(2, 16, 1)
    features, kept = trunk(x), []
    for head, y in zip(heads, targets, strict=True):
        optimizer.zero_grad(set_to_none=False)  # expect: grad-by-reference error
        F.mse_loss(head(features), y).backward(retain_graph=True)  # expect: grad-by-reference error
        kept.append([p.grad for p in shared])  # expect: grad-by-reference error
    for p, first, second in zip(shared, *kept, strict=True):
        overlap = (first * second).sum()
        p.grad = first + second - (overlap.clamp(max=0) / second.square().sum().clamp_min(1e-8)) * second
    optimizer.step()
