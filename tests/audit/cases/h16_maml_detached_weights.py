"""The fast weights go through .data, which cuts the path from the query loss to the meta-parameters; higher#129."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
scale = nn.Parameter(torch.tensor(0.1))  # learned inner learning rate
optimizer = torch.optim.SGD([*net.parameters(), scale], lr=0.1)

for _ in range(3):
    x, y = torch.randn(10, 2), torch.randn(10, 1)
    params = dict(net.named_parameters())
    inner = F.mse_loss(functional_call(net, params, x[:5]), y[:5])
    grads = torch.autograd.grad(inner, list(params.values()), create_graph=True)
    fast = {
        name: p.data - scale * g.data  # expect: untrained error
        for (name, p), g in zip(params.items(), grads, strict=True)
    }
    outer = F.mse_loss(functional_call(net, fast, x[5:]), y[5:])
    optimizer.zero_grad()
    outer.backward()  # expect: untrained error
    optimizer.step()  # expect: untrained error
