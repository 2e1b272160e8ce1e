"""Sound: the state of an RNN crosses steps, but detached."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
rnn, head = nn.LSTM(4, 8), nn.Linear(8, 2)
optimizer = torch.optim.SGD([*rnn.parameters(), *head.parameters()], lr=0.1)
hidden, total = (torch.zeros(1, 3, 8), torch.zeros(1, 3, 8)), 0.0

for _ in range(3):
    chunk, label = torch.randn(5, 3, 4), torch.randint(2, (5, 3))
    hidden = tuple(h.detach() for h in hidden)
    out, hidden = rnn(chunk, hidden)
    loss = F.cross_entropy(head(out).flatten(0, 1), label.flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(rnn.parameters(), 0.01)
    optimizer.step()
    total += loss.item()
