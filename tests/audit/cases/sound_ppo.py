"""Sound: PPO; several passes over one batch, with old probabilities and advantages made without graph."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
actor = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
critic = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-4, eps=1e-5)

for _ in range(2):
    obs, rewards = torch.randn(32, 4), torch.randn(32)
    with torch.no_grad():
        policy = torch.distributions.Categorical(logits=actor(obs))
        actions = policy.sample()
        old_log_prob, values = policy.log_prob(actions), critic(obs).squeeze(1)
        returns = rewards + 0.99 * values.roll(-1)
        advantages = returns - values
    for _ in range(2):
        for index in torch.randperm(32).split(16):
            policy = torch.distributions.Categorical(logits=actor(obs[index]))
            ratio = (policy.log_prob(actions[index]) - old_log_prob[index]).exp()
            adv = advantages[index]
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            pg_loss = torch.max(-adv * ratio, -adv * ratio.clamp(0.8, 1.2)).mean()
            v_loss = 0.5 * F.mse_loss(critic(obs[index]).squeeze(1), returns[index])
            loss = pg_loss + 0.5 * v_loss - 0.01 * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters()], 0.5)
            optimizer.step()
