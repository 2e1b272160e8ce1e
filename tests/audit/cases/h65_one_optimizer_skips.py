"""A broken sample makes the critic's gradient infinite: its step is skipped, the generator's is not; H65."""

import torch
from torch import nn

torch.manual_seed(0)
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
D = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
opt_g = torch.optim.RMSprop(G.parameters(), lr=5e-5)
opt_d = torch.optim.RMSprop(D.parameters(), lr=5e-5)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)

for step in range(3):
    real, fake = torch.randn(16, 2), G(torch.randn(16, 4))
    if step == 1:
        real[0] = 1e35
    loss_d = D(fake.detach()).mean() - D(real).mean()
    opt_d.zero_grad()
    scaler.scale(loss_d).backward()
    loss_g = -D(fake).mean()
    opt_g.zero_grad()
    scaler.scale(loss_g).backward(inputs=list(G.parameters()))
    scaler.step(opt_d)  # expect: partial-skip warning
    scaler.step(opt_g)  # expect: partial-skip warning
    scaler.update()
