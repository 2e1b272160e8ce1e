"""zero_grad stands before the loop, so every step applies all earlier gradients too; the kind of idinvert#1."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
optimizer.zero_grad()

for _ in range(4):
    x, y = torch.randn(16, 12), torch.randint(3, (16,))
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()  # expect: leftover-grad error
