"""retain_graph=True silences the error of h19 and, with a fused optimizer, leaves wrong numbers; restyle-encoder#15."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
cell, head = nn.GRUCell(4, 8), nn.Linear(8, 1)
optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()], lr=1e-2, fused=True)
h = torch.zeros(6, 8)

for _ in range(4):
    x, y = torch.randn(6, 4), torch.randn(6, 1)
    h = cell(x, h)  # expect: crossing-graph error
    loss = F.mse_loss(head(h), y)
    optimizer.zero_grad()
    loss.backward(retain_graph=True)  # expect: crossing-graph error
    optimizer.step()
