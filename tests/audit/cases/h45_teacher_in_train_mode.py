"""A frozen teacher without eval(): its BatchNorm statistics follow the student's data; knowledge-distillation#2."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


def convnet(width):
    body = [nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(width, 3))


teacher, student = convnet(8), convnet(4)
teacher.requires_grad_(False)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)

for _ in range(3):
    x, y = torch.randn(8, 1, 8, 8), torch.randint(3, (8,))
    soft = teacher(x).div(4).softmax(dim=1)  # expect: frozen-in-train-mode warning
    logits = student(x)
    distillation = F.kl_div(logits.div(4).log_softmax(dim=1), soft, reduction="batchmean")
    loss = F.cross_entropy(logits, y) + 16 * distillation
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
