"""A GAN step updates D before G's backward; a fused optimizer hides the error of pytorch/pytorch#39141."""

import torch
from torch import nn

torch.manual_seed(0)
net_g = nn.Sequential(nn.Linear(10, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 6), nn.Tanh())
net_d = nn.Sequential(nn.Linear(6, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1), nn.Sigmoid())
criterion = nn.BCELoss()
optimizer_d = torch.optim.Adam(net_d.parameters(), lr=2e-3, betas=(0.5, 0.999), fused=True)
optimizer_g = torch.optim.Adam(net_g.parameters(), lr=2e-3, betas=(0.5, 0.999), fused=True)

for i in range(3):
    real = torch.rand(16, 6) * 2 - 1
    fake = net_g(torch.randn(16, 10))
    out_real, out_fake = net_d(real), net_d(fake)
    err_d = criterion(out_real, torch.ones(16, 1)) + criterion(out_fake, torch.zeros(16, 1))
    err_g = criterion(out_fake, torch.ones(16, 1))

    optimizer_d.zero_grad()
    err_d.backward(retain_graph=True)
    optimizer_d.step()  # expect: stale-read error

    optimizer_g.zero_grad()
    err_g.backward()  # expect: stale-read error
    optimizer_g.step()
    print(f"[{i}] Loss_D: {err_d.item():.4f} Loss_G: {err_g.item():.4f}")
