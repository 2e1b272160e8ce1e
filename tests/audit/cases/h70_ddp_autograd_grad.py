"""autograd.grad of a DDP model is not reduced over the processes; rosinality/stylegan2-pytorch#48."""

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
    loss = model(torch.randn(16, 6)).square().mean()
    grads = torch.autograd.grad(loss, list(model.parameters()))  # expect: unreduced-grad error
    for p, g in zip(model.parameters(), grads, strict=True):
        p.grad = g
    optimizer.step()  # expect: unreduced-grad error
dist.destroy_process_group()
