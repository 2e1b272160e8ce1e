"""A list of losses, to plot them later, keeps the graph of every step; the kind of learn2learn#381."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
history = []

for _ in range(4):
    inputs, labels = torch.randn(8, 10), torch.randint(2, (8,))
    loss = F.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()  # expect: crossing-graph waste
    optimizer.step()
    history.append(loss)
print("mean loss", float(sum(history)) / 4)
