"""AveragedModel averages the parameters and copies the buffers, unless use_buffers says otherwise."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for _ in range(3):
    x, y = torch.randn(8, 1, 8, 8), torch.randint(2, (8,))
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    ema.update_parameters(model)
ema.eval()
print("loss of the average", F.cross_entropy(ema(x), y).item())
