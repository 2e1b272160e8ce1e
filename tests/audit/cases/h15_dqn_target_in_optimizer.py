"""The optimizer of a DQN gets the parameters of the target network too; the kind of lightly-train#434."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
q = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
target_q = copy.deepcopy(q)
agent = nn.ModuleList([q, target_q])
optimizer = torch.optim.Adam(agent.parameters(), lr=1e-3)  # expect: target-trained error

for step in range(4):
    s, a, r, s2 = torch.randn(32, 4), torch.randint(2, (32, 1)), torch.randn(32), torch.randn(32, 4)
    expected = r + 0.99 * target_q(s2).max(dim=1).values
    loss = F.smooth_l1_loss(q(s).gather(1, a).squeeze(1), expected)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # expect: target-trained error
    if step % 2 == 1:
        target_q.load_state_dict(q.state_dict())
