"""Sound: averages of parameters and buffers, by AveragedModel and by hand."""

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99), use_buffers=True)
by_hand = copy.deepcopy(model).eval()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for _ in range(3):
    x, y = torch.randn(16, 6), torch.randint(2, (16,))
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    average.update_parameters(model)
    with torch.no_grad():
        live = model.state_dict()
        for name, value in by_hand.state_dict().items():
            if value.dtype.is_floating_point:
                value.mul_(0.99).add_(live[name], alpha=0.01)
            else:
                value.copy_(live[name])
