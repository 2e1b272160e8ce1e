"""Sound: VQ-VAE with straight-through gradients and a codebook that its own loss trains."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class VectorQuantizer(nn.Module):
    def __init__(self, size=16, dim=4):
        super().__init__()
        self.embedding = nn.Embedding(size, dim)
        self.embedding.weight.data.uniform_(-1 / size, 1 / size)

    def forward(self, z):
        distance = (
            z.square().sum(1, keepdim=True) + self.embedding.weight.square().sum(1) - 2 * z @ self.embedding.weight.t()
        )
        q = self.embedding(distance.argmin(dim=1))
        loss = F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(q.detach(), z)
        return z + (q - z).detach(), loss


encoder, quantizer, decoder = nn.Linear(6, 4), VectorQuantizer(), nn.Linear(4, 6)
optimizer = torch.optim.Adam([*encoder.parameters(), *quantizer.parameters(), *decoder.parameters()], lr=1e-3)
for _ in range(3):
    x = torch.randn(16, 6)
    z, vq_loss = quantizer(encoder(x))
    loss = F.mse_loss(decoder(z), x) + vq_loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
