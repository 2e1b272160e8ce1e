"""A frozen backbone keeps moving: zero gradients instead of None, and Adam's momentum; pytorch/pytorch#150610."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
backbone = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
head = nn.Linear(16, 2)
optimizer = torch.optim.Adam([*backbone.parameters(), *head.parameters()], lr=1e-2)

for step in range(4):
    if step == 1:
        for p in backbone.parameters():
            p.requires_grad = False  # expect: frozen-moves error
    x, y = torch.randn(16, 6), torch.randint(2, (16,))
    loss = F.cross_entropy(head(backbone(x)), y)
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()  # expect: frozen-moves error
