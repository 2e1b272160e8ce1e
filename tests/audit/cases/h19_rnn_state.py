"""An RNN's state keeps its graph from one step to the next, whose backward runs into freed nodes; learn2learn#381."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
rnn, head = nn.LSTM(4, 8), nn.Linear(8, 2)
optimizer = torch.optim.Adam([*rnn.parameters(), *head.parameters()], lr=1e-3)
state = (torch.zeros(1, 3, 8), torch.zeros(1, 3, 8))

for _ in range(3):
    chunk, label = torch.randn(5, 3, 4), torch.randint(2, (5, 3))
    out, state = rnn(chunk, state)  # expect: crossing-graph error
    loss = F.cross_entropy(head(out).flatten(0, 1), label.flatten())
    optimizer.zero_grad()
    loss.backward()  # expect: crossing-graph error # raises: RuntimeError
    optimizer.step()
