"""The clip stands after the step, so it bounds nothing; the kind of mine-pytorch#8."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
rnn, out = nn.GRU(3, 8, batch_first=True), nn.Linear(8, 1)
params = [*rnn.parameters(), *out.parameters()]
optimizer = torch.optim.RMSprop(params, lr=1e-3)

for _ in range(3):
    x, y = torch.randn(4, 12, 3), torch.randn(4, 1)
    hidden, _ = rnn(x)
    loss = F.mse_loss(out(hidden[:, -1]), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    nn.utils.clip_grad_value_(params, 0.1)  # expect: clip-order error
