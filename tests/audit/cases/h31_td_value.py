"""An actor-critic's advantage is not detached: the actor's loss trains the critic as well; the class of PARL#866."""

import torch
from torch import nn

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
critic = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=1e-3)

for _ in range(3):
    obs, reward, next_obs = torch.randn(16, 4), torch.randn(16), torch.randn(16, 4)
    value = critic(obs).squeeze(1)
    with torch.no_grad():
        returns = reward + 0.99 * critic(next_obs).squeeze(1)
    advantage = returns - value
    policy = torch.distributions.Categorical(logits=actor(obs))
    actor_loss = -(policy.log_prob(policy.sample()) * advantage).mean()  # expect: leaked-grad question
    loss = actor_loss + 0.5 * advantage.square().mean()
    optimizer.zero_grad()
    loss.backward()  # expect: leaked-grad question
    optimizer.step()
