"""The epoch's loss is summed as a tensor and keeps every graph alive; the kind of learn2learn#381."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total_loss = 0

for _ in range(4):
    inputs, labels = torch.randn(8, 10), torch.randint(2, (8,))
    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    total_loss += loss  # expect: crossing-graph waste
print("mean loss", float(total_loss) / 4)
