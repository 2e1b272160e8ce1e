"""Sound: distillation from a frozen teacher in eval mode."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
teacher = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 3))
student = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
teacher.eval()
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-3)
student.train()

for _ in range(3):
    x, y = torch.randn(16, 6), torch.randint(3, (16,))
    with torch.no_grad():
        soft = (teacher(x) / 4).softmax(dim=1)
    logits = student(x)
    loss = F.cross_entropy(logits, y) + 16 * F.kl_div((logits / 4).log_softmax(dim=1), soft, reduction="batchmean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
