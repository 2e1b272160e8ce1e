"""MINE's moving average of exp(T) is part of the loss and keeps the last step's graph; mine-pytorch, H19."""

import torch
from torch import nn

torch.manual_seed(0)
T = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(T.parameters(), lr=1e-3)
running = torch.ones(())

for _ in range(3):
    x = torch.randn(32, 1)
    joint = torch.cat([x, x + 0.3 * torch.randn(32, 1)], dim=1)
    marginal = torch.cat([x, x[torch.randperm(32)]], dim=1)
    et = T(marginal).exp().mean()
    running = 0.99 * running + 0.01 * et  # expect: crossing-graph error
    loss = -(T(joint).mean() - et / running)
    optimizer.zero_grad()
    loss.backward()  # expect: crossing-graph error # raises: RuntimeError
    optimizer.step()
