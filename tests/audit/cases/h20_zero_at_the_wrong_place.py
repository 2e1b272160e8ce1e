"""D's gradients are zeroed before G's backward, which fills them again for D's step; img2img-turbo#56."""

import torch
from torch import nn

torch.manual_seed(0)


class Trainer:
    def __init__(self):
        self.net_g = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 6))
        self.net_d = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
        self.optim_g = torch.optim.AdamW(self.net_g.parameters(), lr=1e-3)
        self.optim_d = torch.optim.AdamW(self.net_d.parameters(), lr=1e-3)

    def training_step(self, source, target):
        self.optim_g.zero_grad()
        self.optim_d.zero_grad()
        output = self.net_g(source)
        loss_g = (output - target).abs().mean() - 0.1 * self.net_d(output).mean()
        loss_g.backward()  # expect: leftover-grad error
        self.optim_g.step()

        loss_real = torch.relu(1 - self.net_d(target)).mean()
        loss_fake = torch.relu(1 + self.net_d(output.detach())).mean()
        ((loss_real + loss_fake) * 0.5).backward()
        self.optim_d.step()  # expect: leftover-grad error


trainer = Trainer()
for _ in range(3):
    trainer.training_step(torch.randn(8, 6), torch.randn(8, 6))
