"""A VAE-GAN zeroes only the decoder between its losses; the encoder's step applies D's too; GenerativeModels#102."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
decoder = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 6))
critic = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
opt_vae = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
opt_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)

for _ in range(3):
    x = torch.randn(16, 6)
    mu, log_var = encoder(x).chunk(2, dim=1)
    recon = decoder(mu + (0.5 * log_var).exp() * torch.randn_like(mu))
    loss_critic = F.softplus(-critic(x)).mean() + F.softplus(critic(recon)).mean()
    opt_critic.zero_grad()
    loss_critic.backward(retain_graph=True)  # expect: leftover-grad error
    opt_critic.step()

    decoder.zero_grad()  # expect: leftover-grad error
    kl = 0.5 * (mu.square() + log_var.exp() - log_var - 1).sum(dim=1).mean()
    loss_vae = F.mse_loss(recon, x) + 0.1 * kl
    loss_vae.backward()
    opt_vae.step()  # expect: leftover-grad error
