"""Gradients are zeroed once, lossD runs through the fake, and G's step applies both losses; pytorch/examples#116."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
gen = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 3))
dis = nn.Sequential(nn.Linear(3, 12), nn.Tanh(), nn.Linear(12, 1))
optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in (gen, dis)]

for _ in range(3):
    for optimizer in optimizers:
        optimizer.zero_grad()
    fake = gen(torch.randn(10, 5))
    d_loss = F.softplus(-dis(torch.randn(10, 3))).mean() + F.softplus(dis(fake)).mean()  # expect: leaked-grad error
    d_loss.backward(retain_graph=True)  # expect: leaked-grad error
    optimizers[1].step()

    g_loss = F.softplus(-dis(fake)).mean()
    g_loss.backward()
    optimizers[0].step()  # expect: leaked-grad error
