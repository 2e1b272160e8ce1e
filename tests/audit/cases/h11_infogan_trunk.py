"""InfoGAN's Q head shares a trunk with D, and the trunk is in the optimizers of both; pytorch/pytorch#40967."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
trunk = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.1))
D, Q = nn.Linear(16, 1), nn.Linear(16, 2)
optim_d = torch.optim.Adam([{"params": trunk.parameters()}, {"params": D.parameters()}], lr=2e-4)
optim_g = torch.optim.Adam(
    [*G.parameters(), *trunk.parameters(), *Q.parameters()], lr=1e-3
)  # expect: shared-parameter warning

for _ in range(3):
    code = torch.randint(2, (16,))
    noise = torch.cat([torch.randn(16, 4), F.one_hot(code, 2).float()], dim=1)
    fake = G(noise)
    optim_d.zero_grad()
    loss_d = F.softplus(-D(trunk(torch.randn(16, 4)))).mean() + F.softplus(D(trunk(fake.detach()))).mean()
    loss_d.backward()
    optim_d.step()

    optim_g.zero_grad()
    features = trunk(fake)
    loss_g = F.softplus(-D(features)).mean() + F.cross_entropy(Q(features), code)
    loss_g.backward()
    optim_g.step()  # expect: shared-parameter warning
