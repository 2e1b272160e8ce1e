"""Steps that everyone knows: DCGAN, WGAN-GP, CycleGAN, a language model, and a net with accumulated gradients."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.workloads import AveragedMlp, Batch, MlpGan, Step, Workload, clip, follow, follow_one_by_one, require


class DcGan(MlpGan):
    """DCGAN in the order of PyTorch's tutorial on small images, batch 16."""

    name = "dcgan"

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.g = nn.Sequential(
            *(nn.ConvTranspose2d(64, 64, 4, bias=False), nn.BatchNorm2d(64), nn.ReLU()),
            *(nn.ConvTranspose2d(64, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU()),
            *(nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()),
            *(nn.ConvTranspose2d(16, 3, 4, 2, 1, bias=False), nn.Tanh()),
        )
        self.d = nn.Sequential(
            *(nn.Conv2d(3, 16, 4, 2, 1, bias=False), nn.LeakyReLU(0.2)),
            *(nn.Conv2d(16, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.LeakyReLU(0.2)),
            *(nn.Conv2d(32, 64, 4, 2, 1, bias=False), nn.BatchNorm2d(64), nn.LeakyReLU(0.2)),
            *(nn.Conv2d(64, 1, 4, bias=False), nn.Sigmoid(), nn.Flatten()),
        )
        self.nets = {"generator": self.g, "discriminator": self.d}
        self.ones, self.zeros = torch.ones(16, 1), torch.zeros(16, 1)

    def batch(self, generator: torch.Generator) -> Batch:
        image = torch.rand(16, 3, 32, 32, generator=generator) * 2 - 1
        return {"image": image, "z": torch.randn(16, 64, 1, 1, generator=generator)}

    def judge(self, real: torch.Tensor, fake: torch.Tensor) -> Sequence[torch.Tensor]:
        """Return what the critic says of either; BatchNorm is to see them apart."""
        return self.d(real), self.d(fake)


class WganGp(Workload):
    """WGAN-GP: the critic steps on five parts of the batch, 64 rows each, and then the generator once."""

    name = "wgan-gp"
    exact = False
    parts = 5

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.g = nn.Sequential(
            *(nn.Linear(64, 128), nn.LeakyReLU(0.2)),
            *(nn.Linear(128, 256, bias=False), nn.BatchNorm1d(256), nn.LeakyReLU(0.2)),
            *(nn.Linear(256, 784), nn.Tanh()),
        )
        self.d = nn.Sequential(
            *(nn.Linear(784, 128), nn.LeakyReLU(0.2)),
            *(nn.Linear(128, 128), nn.LeakyReLU(0.2)),
            nn.Linear(128, 1, bias=False),
        )
        self.nets = {"generator": self.g, "critic": self.d}
        self.ones = torch.ones(64)

    def batch(self, generator: torch.Generator) -> Batch:
        rows = 64 * self.parts
        return {
            "image": torch.rand(rows, 784, generator=generator) * 2 - 1,
            "z": torch.randn(rows, 64, generator=generator),
            "share": torch.rand(rows, 1, generator=generator),
            "last_z": torch.randn(64, 64, generator=generator),
        }

    def split(self, batch: Batch) -> Any:
        """Return the images, the noise and the shares of every part."""
        return zip(*(batch[name].split(64) for name in ("image", "z", "share")), strict=True)

    def optimizers(self, fused: bool | None) -> tuple[torch.optim.Optimizer, torch.optim.Optimizer]:
        """Return those of the generator and of the critic."""
        g, d = (torch.optim.Adam(net.parameters(), 1e-4, (0.0, 0.9), fused=fused) for net in (self.g, self.d))
        return g, d

    def idiom(self) -> Step:
        opt_g, opt_d = self.optimizers(fused=None)

        def penalize(real: torch.Tensor, fake: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
            between = (share * real + (1 - share) * fake).requires_grad_(True)
            scores = self.d(between)
            (slope,) = torch.autograd.grad(
                scores, between, torch.ones_like(scores), create_graph=True, retain_graph=True, only_inputs=True
            )
            return ((slope.norm(2, dim=1) - 1) ** 2).mean()

        def step(batch: Batch) -> Mapping[str, Any]:
            value = 0.0
            for image, z, share in self.split(batch):
                opt_d.zero_grad()
                fake = self.g(z)
                on_real, on_fake = self.d(image), self.d(fake)
                penalty = penalize(image.data, fake.data, share)
                d_loss = -torch.mean(on_real) + torch.mean(on_fake) + 10 * penalty
                d_loss.backward()
                opt_d.step()
                value = d_loss.item()
            opt_g.zero_grad()
            g_loss = -torch.mean(self.d(self.g(batch["last_z"])))
            g_loss.backward()
            opt_g.step()
            return {"d_loss": value, "g_loss": g_loss.item()}

        return step

    def expert(self) -> Step:
        opt_g, opt_d = self.optimizers(fused=True)
        weights_of_d = list(self.d.parameters())

        def step(batch: Batch) -> Mapping[str, Any]:
            d_loss = torch.empty(())
            for image, z, share in self.split(batch):
                with torch.no_grad():
                    fake = self.g(z)
                    between = torch.lerp(fake, image, share)
                between.requires_grad_(True)
                (slope,) = torch.autograd.grad(self.d(between).sum(), between, create_graph=True)
                on_real, on_fake = self.d(torch.cat([image, fake])).split(64)
                steep = F.mse_loss(torch.linalg.vector_norm(slope, dim=1), self.ones)
                d_loss = on_fake.mean() - on_real.mean() + 10 * steep
                d_loss.backward(inputs=weights_of_d)
                opt_d.step()
                opt_d.zero_grad()
            require(weights_of_d, False)
            g_loss = -self.d(self.g(batch["last_z"])).mean()
            g_loss.backward()
            opt_g.step()
            opt_g.zero_grad()
            require(weights_of_d, True)
            return {"d_loss": d_loss.detach(), "g_loss": g_loss.detach()}

        return step


class Residual(nn.Sequential):
    """Layers whose result is added to their input."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return input + super().forward(input)


class CycleGan(Workload):
    """CycleGAN with its identity losses, batch 4 of small images."""

    name = "cyclegan"
    exact = False

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.to_b, self.to_a = self.translator(), self.translator()
        self.critic_a, self.critic_b = self.critic(), self.critic()
        self.nets = {"to_a": self.to_a, "to_b": self.to_b, "critic_a": self.critic_a, "critic_b": self.critic_b}

    def translator(self) -> nn.Sequential:
        """Return a net from images to images."""
        block = (
            nn.Conv2d(16, 16, 3, padding=1, bias=False),
            nn.InstanceNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, padding=1),
        )
        return nn.Sequential(
            *(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.InstanceNorm2d(16), nn.ReLU()),
            *(Residual(*block), nn.Conv2d(16, 3, 3, padding=1), nn.Tanh()),
        )

    def critic(self) -> nn.Sequential:
        """Return a net that judges patches."""
        return nn.Sequential(
            *(nn.Conv2d(3, 16, 4, 2, 1), nn.LeakyReLU(0.2)),
            *(nn.Conv2d(16, 32, 4, 2, 1, bias=False), nn.InstanceNorm2d(32), nn.LeakyReLU(0.2)),
            nn.Conv2d(32, 1, 3, padding=1),
        )

    def batch(self, generator: torch.Generator) -> Batch:
        return {name: torch.rand(4, 3, 24, 24, generator=generator) * 2 - 1 for name in ("a", "b")}

    def optimizers(self, fused: bool | None) -> list[torch.optim.Optimizer]:
        """Return that of both translators, and those of the critics."""
        translators = chain(self.to_b.parameters(), self.to_a.parameters())
        weights = (translators, self.critic_a.parameters(), self.critic_b.parameters())
        return [torch.optim.Adam(each, 2e-4, (0.5, 0.999), fused=fused) for each in weights]

    def idiom(self) -> Step:
        opt, opt_a, opt_b = self.optimizers(fused=None)
        of_critic, of_cycle, of_identity = nn.MSELoss(), nn.L1Loss(), nn.L1Loss()
        valid, fake = torch.ones(4, 1, 6, 6), torch.zeros(4, 1, 6, 6)

        def step(batch: Batch) -> Mapping[str, Any]:
            a, b = batch["a"], batch["b"]
            opt.zero_grad()
            identity = of_identity(self.to_a(a), a) + of_identity(self.to_b(b), b)
            fake_b, fake_a = self.to_b(a), self.to_a(b)
            fooled = of_critic(self.critic_b(fake_b), valid) + of_critic(self.critic_a(fake_a), valid)
            cycle = of_cycle(self.to_a(fake_b), a) + of_cycle(self.to_b(fake_a), b)
            loss = fooled + 10 * cycle + 5 * identity
            loss.backward()
            opt.step()
            losses = [loss.item()]
            for critic, optimizer, real, made in (
                (self.critic_a, opt_a, a, fake_a),
                (self.critic_b, opt_b, b, fake_b),
            ):
                optimizer.zero_grad()
                judged = of_critic(critic(real), valid) + of_critic(critic(made.detach()), fake)
                judged.backward()
                optimizer.step()
                losses.append(judged.item())
            return dict(zip(("loss", "loss_a", "loss_b"), losses, strict=True))

        return step

    def expert(self) -> Step:
        opt, opt_a, opt_b = self.optimizers(fused=True)
        judging = [*self.critic_a.parameters(), *self.critic_b.parameters()]
        valid = torch.ones(4, 1, 6, 6)
        sides = torch.cat([valid, torch.zeros(4, 1, 6, 6)])

        def step(batch: Batch) -> Mapping[str, Any]:
            a, b = batch["a"], batch["b"]
            require(judging, False)
            fake_b, same_b = self.to_b(torch.cat([a, b])).split(4)
            fake_a, same_a = self.to_a(torch.cat([b, a])).split(4)
            fooled = F.mse_loss(self.critic_b(fake_b), valid) + F.mse_loss(self.critic_a(fake_a), valid)
            cycle = F.l1_loss(self.to_a(fake_b), a) + F.l1_loss(self.to_b(fake_a), b)
            loss = fooled + 10 * cycle + 5 * (F.l1_loss(same_a, a) + F.l1_loss(same_b, b))
            loss.backward()
            opt.step()
            opt.zero_grad()
            require(judging, True)
            loss_a = 2 * F.mse_loss(self.critic_a(torch.cat([a, fake_a.detach()])), sides)
            loss_b = 2 * F.mse_loss(self.critic_b(torch.cat([b, fake_b.detach()])), sides)
            (loss_a + loss_b).backward()
            for optimizer in (opt_a, opt_b):
                optimizer.step()
                optimizer.zero_grad()
            return {"loss": loss.detach(), "loss_a": loss_a.detach(), "loss_b": loss_b.detach()}

        return step


class Attention(nn.Module):
    """Causal self-attention by the fused kernel."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(found.transpose(1, 2).flatten(2))


class LanguageModel(nn.Module):
    """A small transformer over characters."""

    def __init__(self, count: int = 64, length: int = 32, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(count, width), nn.Parameter(0.02 * torch.randn(length, width))
        self.body = nn.Sequential(
            *(
                Residual(nn.LayerNorm(width), *layers)
                for _ in range(2)
                for layers in (
                    (Attention(width, heads),),
                    (nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)),
                )
            ),
            nn.LayerNorm(width),
            nn.Linear(width, count),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(self.tokens(x) + self.places)


class LanguageModeling(Workload):
    """A language model of two layers, batch 8 x 32: AdamW, clipped gradients, an average of the weights."""

    name = "language-model"
    exact = False

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = LanguageModel()
        self.average = copy.deepcopy(self.net)
        self.nets = {"net": self.net, "average": self.average}

    def batch(self, generator: torch.Generator) -> Batch:
        return {name: torch.randint(64, (8, 32), generator=generator) for name in ("read", "next")}

    def idiom(self) -> Step:
        optimizer = torch.optim.AdamW(self.net.parameters(), 3e-4, weight_decay=0.1)
        criterion = nn.CrossEntropyLoss()

        def step(batch: Batch) -> Mapping[str, Any]:
            logits = self.net(batch["read"])
            loss = criterion(logits.view(-1, 64), batch["next"].view(-1))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            optimizer.step()
            follow_one_by_one(self.average.parameters(), self.net.parameters(), 0.999)
            return {"loss": loss.item()}

        return step

    def expert(self) -> Step:
        weights, averages = list(self.net.parameters()), list(self.average.parameters())
        optimizer = torch.optim.AdamW(weights, 3e-4, weight_decay=0.1, fused=True)

        def step(batch: Batch) -> Mapping[str, Any]:
            loss = F.cross_entropy(self.net(batch["read"]).view(-1, 64), batch["next"].view(-1))
            loss.backward()
            clip(weights)
            optimizer.step()
            optimizer.zero_grad()
            follow(averages, weights, 0.999)
            return {"loss": loss.detach()}

        return step


class AccumulatedMlp(AveragedMlp):
    """The small classifier, whose weights move in every fourth step, on the mean of four gradients."""

    name = "accumulated-mlp"
    period = 4

    def idiom(self) -> Step:
        optimizer = torch.optim.Adam(self.net.parameters(), 1e-3)
        criterion, taken = nn.CrossEntropyLoss(), 0

        def step(batch: Batch) -> Mapping[str, Any]:
            nonlocal taken
            loss = criterion(self.net(batch["x"]), batch["label"])
            (loss / self.period).backward()
            taken += 1
            if taken % self.period == 0:
                nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                follow_one_by_one(self.average.parameters(), self.net.parameters(), 0.999)
            return {"loss": loss.item()}

        return step

    def expert(self) -> Step:
        weights, averages = list(self.net.parameters()), list(self.average.parameters())
        optimizer, taken = torch.optim.Adam(weights, 1e-3, fused=True), 0

        def step(batch: Batch) -> Mapping[str, Any]:
            nonlocal taken
            loss = F.cross_entropy(self.net(batch["x"]), batch["label"])
            loss.backward()
            taken += 1
            if taken % self.period == 0:  # the sum becomes the mean by the factor that clips
                clip(weights, self.period)
                optimizer.step()
                optimizer.zero_grad()
                follow(averages, weights, 0.999)
            return {"loss": loss.detach()}

        return step


WORKLOADS: tuple[type[Workload], ...] = (DcGan, WganGp, CycleGan, LanguageModeling, AccumulatedMlp)
