"""Sound: a mean teacher that takes the buffers too and runs in eval mode."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
student = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))
teacher = copy.deepcopy(student).requires_grad_(False).eval()
optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)

for step in range(3):
    x, y, u = torch.randn(8, 6), torch.randint(3, (8,)), torch.randn(16, 6)
    logits = student(torch.cat([x, u]))
    with torch.no_grad():
        guess = teacher(u).softmax(dim=1)
    loss = F.cross_entropy(logits[:8], y) + F.mse_loss(logits[8:].softmax(dim=1), guess)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    decay = min(0.99, (1 + step) / (10 + step))
    with torch.no_grad():
        for t, s in zip(teacher.parameters(), student.parameters(), strict=True):
            t.lerp_(s, 1 - decay)
        for t, s in zip(teacher.buffers(), student.buffers(), strict=True):
            t.copy_(s)
