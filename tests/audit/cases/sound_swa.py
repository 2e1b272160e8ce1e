"""Sound: SWA; the average gets its BatchNorm statistics from a pass over the data at the end."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
swa_model = AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
swa_scheduler = SWALR(optimizer, swa_lr=0.05, anneal_epochs=1)
data = [(torch.randn(16, 6), torch.randint(2, (16,))) for _ in range(2)]

for _ in range(2):
    for x, y in data:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    swa_model.update_parameters(model)
    swa_scheduler.step()
update_bn(data, swa_model)
