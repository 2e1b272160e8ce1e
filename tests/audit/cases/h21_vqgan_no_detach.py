"""VQGAN's discriminator loss is not detached, and the autoencoder's step applies its gradients; pytorch-vqgan#3."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
vqgan = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
discriminator = nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
opt_vq = torch.optim.Adam(vqgan.parameters(), lr=1e-3)
opt_disc = torch.optim.Adam(discriminator.parameters(), lr=1e-3)

for _ in range(3):
    images = torch.randn(8, 8)
    decoded = vqgan(images)
    disc_real, disc_fake = discriminator(images), discriminator(decoded)  # expect: leaked-grad error
    vq_loss = (decoded - images).abs().mean() - 0.1 * disc_fake.mean()
    gan_loss = 0.5 * (F.relu(1 - disc_real).mean() + F.relu(1 + disc_fake).mean())

    opt_vq.zero_grad()
    vq_loss.backward(retain_graph=True)
    opt_disc.zero_grad()
    gan_loss.backward()  # expect: leaked-grad error
    opt_vq.step()  # expect: leaked-grad error
    opt_disc.step()
