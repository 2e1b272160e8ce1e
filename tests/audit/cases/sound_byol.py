"""Sound: BYOL; the target's BatchNorm runs in train mode on its own batches, which is what the paper does."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
online = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
predictor = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
target = copy.deepcopy(online)
for p in target.parameters():
    p.requires_grad = False
optimizer = torch.optim.Adam([*online.parameters(), *predictor.parameters()], lr=3e-4)


def loss_fn(p, z):
    return 2 - 2 * (F.normalize(p, dim=1) * F.normalize(z, dim=1)).sum(dim=1)


for _ in range(3):
    x = torch.randn(16, 8)
    one, two = x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)
    pred_one, pred_two = predictor(online(one)), predictor(online(two))
    with torch.no_grad():
        proj_one, proj_two = target(one), target(two)
    loss = (loss_fn(pred_one, proj_two) + loss_fn(pred_two, proj_one)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for t, o in zip(target.parameters(), online.parameters(), strict=True):
        t.data = t.data * 0.99 + o.data * 0.01
