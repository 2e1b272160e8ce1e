"""Values are clipped one line above unscale_; TorchSSL#59."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, nesterov=True)
amp_scaler = torch.amp.GradScaler("cpu", init_scale=4096.0)

for _ in range(3):
    images, labels = torch.randn(4, 1, 8, 8), torch.randint(3, (4,))
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    amp_scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)  # expect: clip-scaled error
    amp_scaler.unscale_(optimizer)
    amp_scaler.step(optimizer)
    amp_scaler.update()
