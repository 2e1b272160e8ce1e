"""A CycleGAN whose discriminators step between the forward of the generators and their backward; simple_CycleGAN#3."""

import itertools

import torch
from torch import nn

torch.manual_seed(0)


def net(width):
    return nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, 6))


class CycleGAN:
    def __init__(self):
        self.ab, self.ba, self.d_a, self.d_b = net(8), net(8), net(12), net(12)
        self.opt_g = torch.optim.Adam(itertools.chain(self.ab.parameters(), self.ba.parameters()), lr=2e-4)
        self.opt_d = torch.optim.Adam(itertools.chain(self.d_a.parameters(), self.d_b.parameters()), lr=2e-4)

    def generator_loss(self, a, b):
        self.fake_b, self.fake_a = self.ab(a), self.ba(b)
        adversarial = (self.d_b(self.fake_b) - 1).square().mean() + (self.d_a(self.fake_a) - 1).square().mean()
        cycle = (self.ba(self.fake_b) - a).abs().mean() + (self.ab(self.fake_a) - b).abs().mean()
        return adversarial + 10 * cycle

    def discriminator_loss(self, a, b):
        real = (self.d_a(a) - 1).square().mean() + (self.d_b(b) - 1).square().mean()
        return real + self.d_a(self.fake_a.detach()).square().mean() + self.d_b(self.fake_b.detach()).square().mean()


gan = CycleGAN()
for _ in range(3):
    a, b = torch.randn(4, 6), torch.randn(4, 6)
    loss_g, loss_d = gan.generator_loss(a, b), gan.discriminator_loss(a, b)
    gan.opt_d.zero_grad()
    loss_d.backward()
    gan.opt_d.step()  # expect: stale-read error
    gan.opt_g.zero_grad()
    loss_g.backward()  # expect: stale-read error # raises: RuntimeError
    gan.opt_g.step()
