"""Sound: DQN with a target network that is loaded now and then, Double-DQN's choice of actions, and a clip."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
q = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
q_target = copy.deepcopy(q)
optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)

for step in range(4):
    s, a, r, s2 = torch.randn(16, 4), torch.randint(2, (16, 1)), torch.randn(16, 1), torch.randn(16, 4)
    with torch.no_grad():
        best = q(s2).argmax(dim=1, keepdim=True)
        y = r + 0.99 * q_target(s2).gather(1, best)
    loss = F.smooth_l1_loss(q(s).gather(1, a), y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(q.parameters(), 0.5)
    optimizer.step()
    if step % 2 == 1:
        q_target.load_state_dict(q.state_dict())
