"""The order of h01 with an optimizer that writes p.data, unseen by autograd; MorvanZhou/PyTorch-Tutorial#89."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class PlainSGD(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.data.add_(p.grad.data, alpha=-group["lr"])  # expect: stale-read error


G = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3))
D = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
opt_g, opt_d = PlainSGD(G.parameters(), 0.1), PlainSGD(D.parameters(), 0.1)

for _ in range(3):
    fake = G(torch.randn(8, 5))
    score = D(fake)
    d_loss = F.softplus(-D(torch.randn(8, 3))).mean() + F.softplus(score).mean()
    g_loss = F.softplus(-score).mean()

    opt_d.zero_grad()
    d_loss.backward(retain_graph=True)
    opt_d.step()  # expect: stale-read error

    opt_g.zero_grad()
    g_loss.backward()  # expect: stale-read error
    opt_g.step()
