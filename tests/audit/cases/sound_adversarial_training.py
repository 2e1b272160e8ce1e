"""Sound: PGD attacks fill the model's gradients, which are zeroed before the training backward."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for _ in range(3):
    x, y = torch.randn(16, 6), torch.randint(2, (16,))
    delta = torch.zeros_like(x, requires_grad=True)
    for _ in range(2):
        F.cross_entropy(model(x + delta), y).backward()
        delta.data = (delta + 0.1 * delta.grad.sign()).clamp(-0.3, 0.3).data
        delta.grad.zero_()
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x + delta.detach()), y)
    loss.backward()
    optimizer.step()
