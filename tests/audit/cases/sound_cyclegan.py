"""Sound: CycleGAN with frozen discriminators in the generators' step and a pool of old images."""

import itertools
import random

import torch
from torch import nn

torch.manual_seed(0)
random.seed(0)
ab, ba = (nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 6)) for _ in range(2))
d_a, d_b = (nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)) for _ in range(2))
opt_g = torch.optim.Adam(itertools.chain(ab.parameters(), ba.parameters()), lr=2e-4)
opt_d = torch.optim.Adam(itertools.chain(d_a.parameters(), d_b.parameters()), lr=2e-4)
mse, l1 = nn.MSELoss(), nn.L1Loss()


def pooled(pool, images):
    pool.append(images.data)
    return random.choice(pool)


def d_loss(net, real, fake):
    on_real, on_fake = net(real), net(fake.detach())
    return 0.5 * (mse(on_real, torch.ones_like(on_real)) + mse(on_fake, torch.zeros_like(on_fake)))


pool_a, pool_b = [], []
for _ in range(3):
    a, b = torch.randn(4, 6), torch.randn(4, 6)
    fake_b, fake_a = ab(a), ba(b)
    for p in itertools.chain(d_a.parameters(), d_b.parameters()):
        p.requires_grad = False
    on_a, on_b = d_a(fake_a), d_b(fake_b)
    adversarial = mse(on_a, torch.ones_like(on_a)) + mse(on_b, torch.ones_like(on_b))
    loss_g = adversarial + 10 * (l1(ba(fake_b), a) + l1(ab(fake_a), b)) + 5 * (l1(ab(b), b) + l1(ba(a), a))
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    for p in itertools.chain(d_a.parameters(), d_b.parameters()):
        p.requires_grad = True
    opt_d.zero_grad()
    d_loss(d_a, a, pooled(pool_a, fake_a)).backward()
    d_loss(d_b, b, pooled(pool_b, fake_b)).backward()
    opt_d.step()
