"""The scheduler steps before the optimizer, so the first learning rate is never used; pytorch/pytorch#55585."""

import warnings

import torch
import torch.nn.functional as F
from torch import nn

warnings.filterwarnings("ignore")
torch.manual_seed(0)
model = nn.Linear(6, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)

for _ in range(3):
    x, y = torch.randn(16, 6), torch.randint(2, (16,))
    scheduler.step()  # expect: schedule-order warning
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
