"""update() is missing: the second step of the optimizer is refused; the kind of neosr#9."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")

for _ in range(3):
    x, y = torch.randn(8, 6), torch.randint(2, (8,))
    optimizer.zero_grad()
    scaler.scale(F.cross_entropy(model(x), y)).backward()
    scaler.step(optimizer)  # expect: scaler-update error # raises: RuntimeError
