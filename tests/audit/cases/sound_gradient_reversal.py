"""Sound: DANN; one backward trains the features against the domain head by a gradient that is turned around."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.strength * grad, None


features = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
label_head, domain_head = nn.Linear(16, 3), nn.Linear(16, 2)
optimizer = torch.optim.Adam([*features.parameters(), *label_head.parameters(), *domain_head.parameters()], lr=1e-3)
for _ in range(3):
    source, label, target = torch.randn(8, 6), torch.randint(3, (8,)), torch.randn(8, 6)
    h = features(torch.cat([source, target]))
    domain = torch.cat([torch.zeros(8), torch.ones(8)]).long()
    loss = F.cross_entropy(label_head(h[:8]), label) + F.cross_entropy(domain_head(Reverse.apply(h, 0.3)), domain)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
