"""Layers in a plain list are no part of parameters(), so only the last layer learns; the kind of yolov5#1213."""

import itertools

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class MLP(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.hidden = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]  # expect: untrained error
        self.out = nn.Linear(widths[-1], 1)

    def forward(self, x):
        for layer in self.hidden:
            x = F.relu(layer(x))
        return self.out(x)


model = MLP([5, 16, 16])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)  # expect: untrained error
for _ in range(3):
    x, y = torch.randn(32, 5), torch.randn(32, 1)
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()  # expect: untrained error
    optimizer.step()  # expect: untrained error
