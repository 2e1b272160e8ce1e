"""Sound: second-order MAML with functional weights, and a validation that leaves no graph."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
meta_optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

for _ in range(3):
    meta_loss = torch.zeros(())
    for _ in range(2):
        x = torch.rand(20, 1) * 10 - 5
        y = torch.rand(1) * 5 * (x + torch.rand(1) * 3).sin()
        fast = dict(net.named_parameters())
        for _ in range(2):
            inner = F.mse_loss(functional_call(net, fast, x[:10]), y[:10])
            grads = torch.autograd.grad(inner, list(fast.values()), create_graph=True)
            fast = {name: p - 0.01 * g for (name, p), g in zip(fast.items(), grads, strict=True)}
        meta_loss = meta_loss + F.mse_loss(functional_call(net, fast, x[10:]), y[10:])
    meta_optimizer.zero_grad()
    meta_loss.backward()
    meta_optimizer.step()
    print(meta_loss.item() / 2)
