"""The loss is made from Python numbers, so backward runs and no weight gets a gradient; the kind of yolov5#1213."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 6))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def masked_error(output, target):
    errors = [(o - t).square().sum().item() for o, t in zip(output, target, strict=True) if t.sum() > 0]
    return torch.tensor(errors, requires_grad=True).mean()  # expect: untrained error


for _ in range(3):
    x = torch.randn(16, 6)
    loss = masked_error(model(x), x)
    optimizer.zero_grad()
    loss.backward()  # expect: untrained error
    optimizer.step()  # expect: untrained error
