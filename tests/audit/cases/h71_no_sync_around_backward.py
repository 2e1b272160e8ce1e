"""no_sync wraps the backward only, which reduces all the same: every micro-batch pays for it; accelerate#1726."""

import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(0)
store = dist.FileStore(tempfile.mkstemp()[1], 1)
dist.init_process_group("gloo", store=store, rank=0, world_size=1)
model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

for _ in range(3):
    optimizer.zero_grad()
    for i in range(3):
        loss = model(torch.randn(8, 6)).square().mean() / 3
        if i < 2:
            with model.no_sync():
                loss.backward()  # expect: no-sync-scope waste
        else:
            loss.backward()
    optimizer.step()
dist.destroy_process_group()
