"""MAML adapts a deep copy with an optimizer, and the query loss fills the copy, not the model; few-shot#9."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
meta_optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for _ in range(3):
    meta_optimizer.zero_grad()
    for _ in range(2):
        x = torch.rand(20, 1) * 10 - 5
        y = (x + torch.rand(1) * 3).sin()
        learner = copy.deepcopy(model)
        inner = torch.optim.SGD(learner.parameters(), lr=0.01)
        for _ in range(2):
            inner.zero_grad()
            F.mse_loss(learner(x[:10]), y[:10]).backward()
            inner.step()
        inner.zero_grad()
        F.mse_loss(learner(x[10:]), y[10:]).backward()  # expect: untrained error
    meta_optimizer.step()  # expect: untrained error
