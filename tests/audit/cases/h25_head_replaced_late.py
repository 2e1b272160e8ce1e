"""The head is replaced after the optimizer got the parameters, so it never learns; the kind of yolov5#1213."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Classifier(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.fc = nn.Linear(32, classes)

    def forward(self, x):
        return self.fc(self.backbone(x))


model = Classifier(classes=10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
model.fc = nn.Linear(32, 3)  # expect: untrained error

for _ in range(3):
    x, y = torch.randn(16, 8), torch.randint(3, (16,))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()  # expect: untrained error
    optimizer.step()  # expect: untrained error
