"""The average is taken between backward and step, so it lags one update; lightly#1844."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
student = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
teacher = copy.deepcopy(student)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)

for _ in range(3):
    x, y = torch.randn(16, 6), torch.randint(2, (16,))
    with torch.no_grad():
        guess = teacher(x).softmax(dim=1)
    logits = student(x)
    loss = F.cross_entropy(logits, y) + F.mse_loss(logits.softmax(dim=1), guess)
    optimizer.zero_grad()
    loss.backward()
    for t, s in zip(teacher.parameters(), student.parameters(), strict=True):
        t.data = 0.99 * t.data + 0.01 * s.data  # expect: ema-order warning
    optimizer.step()
