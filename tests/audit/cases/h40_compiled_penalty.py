"""A gradient penalty through a compiled critic, whose second derivative torch.compile refuses; pytorch#91469."""

import torch
from torch import nn

torch.manual_seed(0)
critic = torch.compile(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), backend="aot_eager")
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-4)

for _ in range(3):
    x = torch.randn(8, 4, requires_grad=True)
    score = critic(x)
    (grad,) = torch.autograd.grad(score.sum(), x, create_graph=True)
    loss = score.mean() + 10 * (grad.norm(dim=1) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()  # expect: compiled-second-derivative error # raises: RuntimeError
    optimizer.step()
