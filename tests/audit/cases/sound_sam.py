"""Sound: SAM; weights are moved to the worst point nearby, differentiated there, put back and then updated."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for _ in range(3):
    x, y = torch.randn(16, 6), torch.randint(2, (16,))
    F.cross_entropy(model(x), y).backward()
    with torch.no_grad():
        norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        moves = [p.grad * (0.05 / (norm + 1e-12)) for p in model.parameters()]
        for p, e in zip(model.parameters(), moves, strict=True):
            p.add_(e)
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    with torch.no_grad():
        for p, e in zip(model.parameters(), moves, strict=True):
            p.sub_(e)
    optimizer.step()
    optimizer.zero_grad()
