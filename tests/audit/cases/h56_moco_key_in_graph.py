"""A key encoder in the gradient's path is averaged through .data before the backward; facebookresearch/moco#70."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
encoder_q = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
encoder_k = copy.deepcopy(encoder_q)
jitter = nn.Linear(6, 6)  # learned augmentation: the keys need gradients with respect to their input
optimizer = torch.optim.SGD([*encoder_q.parameters(), *jitter.parameters()], lr=0.1)

for _ in range(3):
    x = torch.randn(16, 6)
    q = F.normalize(encoder_q(x), dim=1)
    k = F.normalize(encoder_k(x + 0.1 * jitter(x)), dim=1)
    loss = F.cross_entropy(q @ k.t() / 0.2, torch.arange(16))

    for param_q, param_k in zip(encoder_q.parameters(), encoder_k.parameters(), strict=True):
        param_k.data.mul_(0.9).add_(param_q.data, alpha=0.1)  # expect: stale-read error

    optimizer.zero_grad()
    loss.backward()  # expect: stale-read error
    optimizer.step()
