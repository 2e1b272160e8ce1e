"""The wrong side of the consistency loss is detached: the student gets nothing of it; the kind of wgan-gp#4."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
student = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3))
teacher = copy.deepcopy(student)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1)

for _ in range(3):
    x, y, unlabelled = torch.randn(8, 5), torch.randint(3, (8,)), torch.randn(16, 5)
    with torch.no_grad():
        guess = teacher(unlabelled)
    noisy = student(unlabelled + 0.1 * torch.randn_like(unlabelled)).detach()  # expect: dead-term error
    consistency = F.mse_loss(noisy.softmax(1), guess.softmax(1))
    loss = F.cross_entropy(student(x), y) + 10 * consistency  # expect: dead-term error
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for t, s in zip(teacher.parameters(), student.parameters(), strict=True):
            t.lerp_(s, 0.01)
