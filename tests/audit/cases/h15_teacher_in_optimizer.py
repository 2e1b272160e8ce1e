"""BYOL's module holds its target, so the optimizer gets it, and its gradient moves it; lightly-train#434."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class BYOL(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8))
        self.predictor = nn.Linear(8, 8)
        self.target = copy.deepcopy(self.online)

    def forward(self, x1, x2):
        p = F.normalize(self.predictor(self.online(x1)), dim=1)
        z = F.normalize(self.target(x2), dim=1)
        return 2 - 2 * (p * z).sum(dim=1).mean()

    @torch.no_grad()
    def update_target(self):
        for slow, fast in zip(self.target.parameters(), self.online.parameters(), strict=True):
            slow.lerp_(fast, 0.01)


model = BYOL()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)  # expect: target-trained error
for _ in range(3):
    x = torch.randn(16, 6)
    loss = model(x, x + 0.1 * torch.randn_like(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # expect: target-trained error
    model.update_target()
