"""Sound: a frozen backbone in eval mode; only the head is optimized, and train() leaves the backbone alone."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
backbone = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU()).eval()
for p in backbone.parameters():
    p.requires_grad = False
head = nn.Linear(16, 2)
optimizer = torch.optim.Adam(filter(lambda p: p.requires_grad, [*backbone.parameters(), *head.parameters()]), lr=1e-3)

for _ in range(3):
    head.train()
    x, y = torch.randn(16, 6), torch.randint(2, (16,))
    loss = F.cross_entropy(head(backbone(x)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
head.eval()
with torch.no_grad():
    print("accuracy", (head(backbone(x)).argmax(1) == y).float().mean().item())
