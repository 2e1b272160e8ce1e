"""Sound: MoCo; the key encoder moves before its own forward, and its keys enter a queue."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
encoder_q = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
encoder_k = copy.deepcopy(encoder_q)
for p in encoder_k.parameters():
    p.requires_grad = False
queue = F.normalize(torch.randn(4, 32), dim=0)
optimizer = torch.optim.SGD(encoder_q.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)

for step in range(3):
    x = torch.randn(8, 6)
    q = F.normalize(encoder_q(x + 0.1 * torch.randn_like(x)), dim=1)
    with torch.no_grad():
        for param_q, param_k in zip(encoder_q.parameters(), encoder_k.parameters(), strict=True):
            param_k.data = param_k.data * 0.999 + param_q.data * 0.001
        k = F.normalize(encoder_k(x), dim=1)
    l_pos, l_neg = (q * k).sum(dim=1, keepdim=True), q @ queue.clone().detach()
    loss = F.cross_entropy(torch.cat([l_pos, l_neg], dim=1) / 0.07, torch.zeros(8, dtype=torch.long))
    at = step * 8 % 32
    queue[:, at : at + 8] = k.t()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
