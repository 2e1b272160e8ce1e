"""Sound: LBFGS calls its closure several times a step; weights change between the backwards as they should."""

import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.LBFGS(net.parameters(), lr=0.5, max_iter=4)
x = torch.linspace(0, 1, 20)[:, None]
target = (3 * x).sin()


def closure():
    optimizer.zero_grad()
    x_in = x.clone().requires_grad_(True)
    u = net(x_in)
    (du,) = torch.autograd.grad(u.sum(), x_in, create_graph=True)
    loss = (u - target).square().mean() + 0.1 * (du - 3 * (3 * x).cos()).square().mean()
    loss.backward()
    return loss


for _ in range(3):
    optimizer.step(closure)
