"""The perceptual loss runs under no_grad to save memory, so it trains nothing; the kind of wgan-gp#4."""

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Conv2d(1, 1, 3, padding=1)
features = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)).eval().requires_grad_(False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


@torch.no_grad()  # expect: dead-term error
def perceptual(output, target):
    return (features(output) - features(target)).square().mean()  # expect: dead-term error


for _ in range(3):
    noisy, clean = torch.randn(2, 1, 8, 8), torch.randn(2, 1, 8, 8)
    output = model(noisy)
    loss = (output - clean).abs().mean() + 0.1 * perceptual(output, clean)  # expect: dead-term error
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
