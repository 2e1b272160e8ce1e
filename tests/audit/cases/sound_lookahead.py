"""Sound: Lookahead; slow weights are written back into the model every second step, after the update."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
slow = [p.detach().clone() for p in model.parameters()]

for step in range(4):
    x, y = torch.randn(16, 6), torch.randint(2, (16,))
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    if (step + 1) % 2 == 0:
        for s, p in zip(slow, model.parameters(), strict=True):
            s.add_(p.data - s, alpha=0.5)
            p.data.copy_(s)
