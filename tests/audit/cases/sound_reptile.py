"""Sound: Reptile; a copy is trained by an optimizer of its own, and the difference is the meta-gradient."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
meta_optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for _ in range(3):
    learner = copy.deepcopy(model)
    inner = torch.optim.Adam(learner.parameters(), lr=1e-2)
    phase = torch.rand(1) * 3
    for _ in range(3):
        x = torch.rand(10, 1) * 10 - 5
        inner.zero_grad()
        F.mse_loss(learner(x), (x + phase).sin()).backward()
        inner.step()
    meta_optimizer.zero_grad()
    for p, q in zip(model.parameters(), learner.parameters(), strict=True):
        p.grad = p.data - q.data
    meta_optimizer.step()
