"""A gradient penalty is made of scaled gradients, and so is a thousand times too large; the kind of returnn#1590."""

import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(4, 16), nn.Softplus(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

for _ in range(3):
    real = torch.randn(16, 4, requires_grad=True)
    score = critic(real)
    (grad,) = torch.autograd.grad(scaler.scale(score.sum()), real, create_graph=True)  # expect: scaled-penalty error
    r1 = grad.square().sum(dim=1).mean()  # expect: scaled-penalty error
    loss = nn.functional.softplus(-score).mean() + 5 * r1  # expect: scaled-penalty error
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
