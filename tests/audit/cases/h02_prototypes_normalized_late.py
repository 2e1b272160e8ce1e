"""SwAV-like prototypes are normalized through .data between forward and backward; pytorch/pytorch#37573."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 8))
prototypes = nn.Linear(8, 5, bias=False)
optimizer = torch.optim.SGD([*encoder.parameters(), *prototypes.parameters()], lr=0.1, momentum=0.9)

for _ in range(3):
    x = torch.randn(16, 6)
    first = prototypes(F.normalize(encoder(x), dim=1))
    second = prototypes(F.normalize(encoder(x + 0.1 * torch.randn_like(x)), dim=1))
    assignment = second.detach().div(0.05).softmax(dim=1)
    loss = -(assignment * first.div(0.1).log_softmax(dim=1)).sum(dim=1).mean()

    weight = prototypes.weight.data.clone()
    prototypes.weight.data.copy_(F.normalize(weight, dim=1))  # expect: stale-read error

    optimizer.zero_grad()
    loss.backward()  # expect: stale-read error
    optimizer.step()
