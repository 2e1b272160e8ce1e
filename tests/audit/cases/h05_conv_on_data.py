"""Two losses over one convolution with an update between: torch refuses, where a linear layer passes (H05)."""

import torch
from torch import nn

torch.manual_seed(0)
conv = nn.Conv2d(3, 4, 3, padding=1)
optimizer = torch.optim.SGD(conv.parameters(), lr=0.1)

for _ in range(3):
    features = conv(torch.randn(2, 3, 8, 8))
    reconstruction = features.square().mean()
    sparsity = features.abs().mean()

    optimizer.zero_grad()
    reconstruction.backward(retain_graph=True)
    optimizer.step()  # expect: stale-read error

    optimizer.zero_grad()
    sparsity.backward()  # expect: stale-read error # raises: RuntimeError
    optimizer.step()
