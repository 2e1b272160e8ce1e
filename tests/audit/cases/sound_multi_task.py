"""Sound: two tasks share a trunk; their losses are summed, once as one backward and once as two."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
trunk = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
regression, classification = nn.Linear(16, 1), nn.Linear(16, 3)
optimizer = torch.optim.Adam([*trunk.parameters(), *regression.parameters(), *classification.parameters()], lr=1e-3)

for step in range(4):
    x, y, label = torch.randn(16, 6), torch.randn(16, 1), torch.randint(3, (16,))
    h = trunk(x)
    first, second = F.mse_loss(regression(h), y), F.cross_entropy(classification(h), label)
    optimizer.zero_grad()
    if step % 2:
        (first + 0.5 * second).backward()
    else:
        first.backward(retain_graph=True)
        (0.5 * second).backward()
    optimizer.step()
