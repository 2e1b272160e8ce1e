"""zero_grad stands between backward and step, so the step has no gradient to apply; the kind of H20."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for _ in range(3):
    x, y = torch.randn(16, 6), torch.randn(16, 1)
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.zero_grad()  # expect: zeroed-grad error
    optimizer.step()  # expect: zeroed-grad error
