"""DINO's center moves with every micro-batch of an accumulated step; facebookresearch/dino#102."""

import copy

import torch
from torch import nn

torch.manual_seed(0)
student = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 8))
teacher = copy.deepcopy(student).requires_grad_(False)
center = torch.zeros(1, 8)
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)


def dino_loss(s, t):
    target = ((t - center) / 0.04).softmax(dim=1).detach()
    loss = -(target * (s / 0.1).log_softmax(dim=1)).sum(dim=1).mean()
    center.mul_(0.9).add_(t.mean(dim=0, keepdim=True), alpha=0.1)  # expect: state-per-forward warning
    return loss


for _ in range(3):
    optimizer.zero_grad()
    for _ in range(4):
        x = torch.randn(8, 6)
        with torch.no_grad():
            t = teacher(x + 0.1 * torch.randn_like(x))
        (dino_loss(student(x), t) / 4).backward()  # expect: state-per-forward warning
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
            slow.mul_(0.996).add_(fast, alpha=0.004)
