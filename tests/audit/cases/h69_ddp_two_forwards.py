"""Two forwards and then two backwards of one DDP model: its reducer joins only one of them; OSEDiff#30."""

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
    real, fake = torch.randn(16, 6), torch.randn(16, 6) + 1
    loss_real = (model(real) - 1).square().mean()
    loss_fake = model(fake).square().mean()  # expect: ddp-forwards error
    optimizer.zero_grad()
    loss_real.backward()  # expect: ddp-forwards error
    loss_fake.backward()  # expect: ddp-forwards error
    optimizer.step()
dist.destroy_process_group()
