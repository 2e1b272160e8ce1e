"""Sound: the alternating step of the DCGAN tutorial, two backwards for D and D(fake) made again after its update."""

import torch
from torch import nn

torch.manual_seed(0)
net_g = nn.Sequential(
    nn.ConvTranspose2d(8, 4, 4, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 1, 1), nn.Tanh()
)
net_d = nn.Sequential(
    nn.Conv2d(1, 4, 2), nn.BatchNorm2d(4), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(36, 1), nn.Sigmoid()
)
criterion = nn.BCELoss()
optimizer_d = torch.optim.Adam(net_d.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizer_g = torch.optim.Adam(net_g.parameters(), lr=2e-4, betas=(0.5, 0.999))

for _ in range(3):
    net_d.zero_grad()
    label = torch.full((8, 1), 1.0)
    output = net_d(torch.rand(8, 1, 4, 4) * 2 - 1)
    err_real = criterion(output, label)
    err_real.backward()
    fake = net_g(torch.randn(8, 8, 1, 1))
    label.fill_(0.0)
    err_fake = criterion(net_d(fake.detach()), label)
    err_fake.backward()
    optimizer_d.step()

    net_g.zero_grad()
    label.fill_(1.0)
    err_g = criterion(net_d(fake), label)
    err_g.backward()
    optimizer_g.step()
    print((err_real + err_fake).item(), err_g.item())
