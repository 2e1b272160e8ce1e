"""Fine-tuning calls model.train(), and the BatchNorm of the frozen backbone adapts to the new data; chemprop#952."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class FineTuned(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.head = nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.backbone(x))  # expect: frozen-in-train-mode warning


model = FineTuned()
for p in model.backbone.parameters():
    p.requires_grad = False
optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-3)

for _ in range(3):
    model.train()  # expect: frozen-in-train-mode warning
    x, y = 3 + torch.randn(16, 6), torch.randint(2, (16,))
    loss = F.cross_entropy(model(x), y)  # expect: frozen-in-train-mode warning
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
