"""A codebook that its forward averages moves once a micro-batch, not once an update; vector-quantize-pytorch#221."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Quantizer(nn.Module):
    def __init__(self, size, dim, decay=0.9):
        super().__init__()
        self.decay = decay
        self.register_buffer("codes", torch.randn(size, dim))
        self.register_buffer("count", torch.ones(size))
        self.register_buffer("total", self.codes.clone())

    def forward(self, z):
        index = torch.cdist(z, self.codes).argmin(dim=1)
        hot = F.one_hot(index, len(self.codes)).type_as(z)
        q = self.codes[index]
        if self.training:
            with torch.no_grad():
                self.count.lerp_(hot.sum(dim=0), 1 - self.decay)  # expect: state-per-forward warning
                self.total.lerp_(hot.t() @ z, 1 - self.decay)  # expect: state-per-forward warning
                self.codes.copy_(self.total / (self.count[:, None] + 1e-5))  # expect: state-per-forward warning
        return z + (q - z).detach(), F.mse_loss(z, q.detach())


encoder, quantizer, decoder = nn.Linear(6, 4), Quantizer(8, 4), nn.Linear(4, 6)
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
for i in range(8):
    x = torch.randn(16, 6)
    q, commitment = quantizer(encoder(x))  # expect: state-per-forward warning
    ((F.mse_loss(decoder(q), x) + 0.25 * commitment) / 4).backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
