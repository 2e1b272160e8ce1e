"""The bootstrapped target of a Q-network without target network is not detached; the class of PARL#866."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
q_net = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 2))
optimizer = torch.optim.Adam(q_net.parameters(), lr=1e-3)

for _ in range(3):
    state, next_state = torch.randn(32, 4), torch.randn(32, 4)
    action, reward = torch.randint(2, (32, 1)), torch.randn(32)
    done = (torch.rand(32) < 0.1).float()
    q = q_net(state).gather(1, action).squeeze(1)
    target = reward + 0.99 * (1 - done) * q_net(next_state).max(dim=1).values  # expect: undetached-target warning
    loss = F.smooth_l1_loss(q, target)
    optimizer.zero_grad()
    loss.backward()  # expect: undetached-target warning
    optimizer.step()
