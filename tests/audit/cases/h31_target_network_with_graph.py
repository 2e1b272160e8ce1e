"""The target network runs without no_grad: gradients are made for it that no update applies; the class of PARL#866."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 1))
critic_target = copy.deepcopy(critic)
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)

for _ in range(3):
    sa, reward, next_sa = torch.randn(32, 5), torch.randn(32, 1), torch.randn(32, 5)
    target_q = reward + 0.99 * critic_target(next_sa)  # expect: lost-grad waste
    loss = F.mse_loss(critic(sa), target_q)
    optimizer.zero_grad()
    loss.backward()  # expect: lost-grad waste
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(critic_target.parameters(), critic.parameters(), strict=True):
            slow.mul_(0.995).add_(fast, alpha=0.005)
