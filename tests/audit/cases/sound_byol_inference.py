"""Sound: BYOL; its target moves its own BatchNorm's statistics in inference mode, and its weights by one `lerp`."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
online = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
predictor = nn.Linear(8, 8)
target = copy.deepcopy(online)
slow, fast = list(target.parameters()), list(online.parameters())
optimizer = torch.optim.SGD([*online.parameters(), *predictor.parameters()], lr=0.05)

for _ in range(3):
    a, b = torch.randn(2, 16, 8)
    with torch.inference_mode():
        goal_a, goal_b = target(a), target(b)
    loss = -F.cosine_similarity(predictor(online(a)), goal_b.clone()).mean()
    loss -= F.cosine_similarity(predictor(online(b)), goal_a.clone()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        torch._foreach_lerp_(slow, fast, 0.01)
