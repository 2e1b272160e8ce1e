"""A parameter is listed twice in one optimizer, which then moves it twice a step; pytorch/pytorch#40967."""

import warnings

import torch
import torch.nn.functional as F
from torch import nn

warnings.filterwarnings("ignore")
torch.manual_seed(0)
trunk = nn.Linear(5, 8)
policy_head, value_head = nn.Linear(8, 2), nn.Linear(8, 1)
policy = nn.Sequential(trunk, nn.Tanh(), policy_head)
value = nn.Sequential(trunk, nn.Tanh(), value_head)
params = list(policy.parameters()) + list(value.parameters())
optimizer = torch.optim.SGD(params, lr=0.1)  # expect: shared-parameter error

for _ in range(3):
    obs, action, advantage = torch.randn(16, 5), torch.randint(2, (16,)), torch.randn(16)
    log_prob = policy(obs).log_softmax(dim=1).gather(1, action[:, None]).squeeze(1)
    loss = -(log_prob * advantage).mean() + 0.5 * F.mse_loss(value(obs).squeeze(1), advantage)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # expect: shared-parameter error
