"""Two optimizers own one encoder, both backwards fill it and both steps apply the sum; veGiantModel#6."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
head_a, head_b = nn.Linear(16, 1), nn.Linear(16, 3)
opt_a = torch.optim.Adam([*encoder.parameters(), *head_a.parameters()], lr=1e-3)
opt_b = torch.optim.Adam([*encoder.parameters(), *head_b.parameters()], lr=1e-3)  # expect: shared-parameter error

for _ in range(3):
    x, y, label = torch.randn(16, 6), torch.randn(16, 1), torch.randint(3, (16,))
    h = encoder(x)
    loss_a = F.mse_loss(head_a(h), y)
    loss_b = F.cross_entropy(head_b(h), label)
    opt_a.zero_grad()
    opt_b.zero_grad()
    loss_a.backward(retain_graph=True)
    loss_b.backward()
    opt_a.step()
    opt_b.step()  # expect: shared-parameter error
