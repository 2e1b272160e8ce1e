"""A teacher under no_grad, but with dropout on; overhaul-distillation#37."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
teacher = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 3))
student = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)

for _ in range(3):
    student.train()
    x = torch.randn(16, 6)
    with torch.no_grad():
        soft = teacher(x).softmax(dim=1)  # expect: frozen-in-train-mode warning
    loss = F.kl_div(student(x).log_softmax(dim=1), soft, reduction="batchmean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
