"""Three steps from papers, each of another shape: two domains and one backward, a shared trunk, guessed labels.

Nobody tuned the compiler for them. They were written by hand before it was seen what is emitted for their specs.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from itertools import chain
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.workloads import Batch, Step, Workload, follow, follow_one_by_one, require


class Reverse(torch.autograd.Function):
    """The identity, whose gradient is turned round and scaled."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float) -> torch.Tensor:
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *slopes: torch.Tensor) -> tuple[torch.Tensor, None]:
        return slopes[0] * -ctx.scale, None


class Dann(Workload):
    """Domain-adversarial training (Ganin et al. 2016): features that tell labels, but not the domain; 2 x 32 images."""

    name = "dann"
    exact = False
    scale = 0.1

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.extractor = nn.Sequential(
            *(nn.Conv2d(3, 16, 5, padding=2, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 5, padding=2, bias=False), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
            nn.Flatten(),
        )
        self.labeler = nn.Sequential(nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10))
        self.critic = nn.Sequential(nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 1))
        self.nets = {"extractor": self.extractor, "labeler": self.labeler, "critic": self.critic}

    def batch(self, generator: torch.Generator) -> Batch:
        source, target = (torch.randn(32, 3, 16, 16, generator=generator) for _ in range(2))
        return {"source": source, "target": target, "label": torch.randint(10, (32,), generator=generator)}

    def optimizer(self, fused: bool | None) -> torch.optim.Optimizer:
        """Return the one of all nets."""
        return torch.optim.Adam(chain.from_iterable(net.parameters() for net in self.nets.values()), 1e-3, fused=fused)

    def idiom(self) -> Step:
        optimizer = self.optimizer(fused=None)
        criterion, of_domain = nn.CrossEntropyLoss(), nn.BCEWithLogitsLoss()

        def judge(image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            features = self.extractor(image)
            return self.labeler(features), self.critic(Reverse.apply(features, self.scale))

        def step(batch: Batch) -> Mapping[str, Any]:
            optimizer.zero_grad()
            scores, side = judge(batch["source"])
            label_loss = criterion(scores, batch["label"])
            source_loss = of_domain(side, torch.zeros(32, 1, device=side.device))
            _, side = judge(batch["target"])
            target_loss = of_domain(side, torch.ones(32, 1, device=side.device))
            (target_loss + source_loss + label_loss).backward()
            optimizer.step()
            return {"label_loss": label_loss.item(), "domain_loss": source_loss.item() + target_loss.item()}

        return step

    def expert(self) -> Step:
        optimizer = self.optimizer(fused=True)
        sides = torch.cat([torch.zeros(32, 1), torch.ones(32, 1)])

        def step(batch: Batch) -> Mapping[str, Any]:
            source, target = self.extractor(batch["source"]), self.extractor(batch["target"])
            label_loss = F.cross_entropy(self.labeler(source), batch["label"])
            reversed_features = Reverse.apply(torch.cat([source, target]), self.scale)
            domain_loss = 2 * F.binary_cross_entropy_with_logits(self.critic(reversed_features), sides)
            (label_loss + domain_loss).backward()
            optimizer.step()
            optimizer.zero_grad()
            return {"label_loss": label_loss.detach(), "domain_loss": domain_loss.detach()}

        return step


class InfoGan(Workload):
    """InfoGAN (Chen et al. 2016): one trunk judges and reads codes, and readers learn with the generator; batch 64."""

    name = "infogan"
    exact = False

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.generator = nn.Sequential(
            *(nn.Linear(74, 256, bias=False), nn.BatchNorm1d(256), nn.ReLU()),
            *(nn.Linear(256, 512, bias=False), nn.BatchNorm1d(512), nn.ReLU()),
            *(nn.Linear(512, 784), nn.Tanh()),
        )
        self.trunk = nn.Sequential(
            *(nn.Linear(784, 512), nn.LeakyReLU(0.1)),
            *(nn.Linear(512, 128), nn.LeakyReLU(0.1)),
        )
        self.judge, self.namer, self.coder = (nn.Sequential(nn.Linear(128, size)) for size in (1, 10, 2))
        self.judging = [*self.trunk.parameters(), *self.judge.parameters()]
        self.nets = {
            "generator": self.generator,
            "trunk": self.trunk,
            "judge": self.judge,
            "namer": self.namer,
            "coder": self.coder,
        }

    def batch(self, generator: torch.Generator) -> Batch:
        return {
            "image": torch.rand(64, 784, generator=generator) * 2 - 1,
            "z": torch.randn(64, 62, generator=generator),
            "label": torch.randint(10, (64,), generator=generator),
            "code": torch.rand(64, 2, generator=generator) * 2 - 1,
        }

    def optimizers(self, fused: bool | None) -> tuple[torch.optim.Optimizer, torch.optim.Optimizer]:
        """Return those of what judges, and of the generator with what reads."""
        others = chain.from_iterable(net.parameters() for net in (self.generator, self.namer, self.coder))
        opt_d, opt_g = (torch.optim.Adam(each, 2e-4, (0.5, 0.999), fused=fused) for each in (self.judging, others))
        return opt_d, opt_g

    def idiom(self) -> Step:
        opt_d, opt_g = self.optimizers(fused=None)
        criterion, of_label, of_code = nn.BCEWithLogitsLoss(), nn.CrossEntropyLoss(), nn.MSELoss()

        def step(batch: Batch) -> Mapping[str, Any]:
            target = torch.ones(64, 1, device=batch["z"].device)
            opt_d.zero_grad()
            real_loss = criterion(self.judge(self.trunk(batch["image"])), target)
            real_loss.backward()
            noise = torch.cat([batch["z"], F.one_hot(batch["label"], 10).float(), batch["code"]], 1)
            fake = self.generator(noise)
            target.fill_(0)
            fake_loss = criterion(self.judge(self.trunk(fake.detach())), target)
            fake_loss.backward()
            opt_d.step()
            opt_g.zero_grad()
            features = self.trunk(fake)
            target.fill_(1)
            g_loss = criterion(self.judge(features), target)
            info_loss = of_label(self.namer(features), batch["label"])
            info_loss = info_loss + 0.1 * of_code(self.coder(features), batch["code"])
            (g_loss + info_loss).backward()
            opt_g.step()
            return {"d_loss": (real_loss + fake_loss).item(), "g_loss": g_loss.item(), "info_loss": info_loss.item()}

        return step

    def expert(self) -> Step:
        opt_d, opt_g = self.optimizers(fused=True)
        ones, eye = torch.ones(64, 1), torch.eye(10)
        sides = torch.cat([ones, torch.zeros(64, 1)])
        criterion = F.binary_cross_entropy_with_logits

        def step(batch: Batch) -> Mapping[str, Any]:
            fake = self.generator(torch.cat([batch["z"], eye[batch["label"]], batch["code"]], 1))
            seen = torch.cat([batch["image"], fake.detach()])
            d_loss = 2 * criterion(self.judge(self.trunk(seen)), sides)
            d_loss.backward()
            opt_d.step()
            opt_d.zero_grad()
            require(self.judging, False)
            features = self.trunk(fake)
            g_loss = criterion(self.judge(features), ones)
            info_loss = F.cross_entropy(self.namer(features), batch["label"])
            info_loss = info_loss + 0.1 * F.mse_loss(self.coder(features), batch["code"])
            (g_loss + info_loss).backward()
            opt_g.step()
            opt_g.zero_grad()
            require(self.judging, True)
            return {"d_loss": d_loss.detach(), "g_loss": g_loss.detach(), "info_loss": info_loss.detach()}

        return step


class MixMatch(Workload):
    """MixMatch (Berthelot et al. 2019) on vectors: labels are guessed, sharpened and mixed; 32 labeled, 2 x 32 not."""

    name = "mixmatch"
    exact = False

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(
            *(nn.Linear(128, 256), nn.LeakyReLU(0.1)),
            *(nn.Linear(256, 256), nn.LeakyReLU(0.1)),
            nn.Linear(256, 10),
        )
        self.average = copy.deepcopy(self.net)
        self.nets = {"net": self.net, "average": self.average}

    def batch(self, generator: torch.Generator) -> Batch:
        batch = {name: torch.randn(32, 128, generator=generator) for name in ("x", "u", "u_2")}
        batch["label"] = torch.randint(10, (32,), generator=generator)
        batch["order"] = torch.randperm(96, generator=generator)
        batch["share"] = 0.5 + torch.rand(1, generator=generator) / 2
        return batch

    def idiom(self) -> Step:
        optimizer = torch.optim.Adam(self.net.parameters(), 2e-3)

        def step(batch: Batch) -> Mapping[str, Any]:
            x, u, u_2 = batch["x"], batch["u"], batch["u_2"]
            label = torch.zeros(32, 10, device=x.device).scatter_(1, batch["label"].view(-1, 1), 1)
            with torch.no_grad():
                guessed = (torch.softmax(self.net(u), dim=1) + torch.softmax(self.net(u_2), dim=1)) / 2
                sharp = guessed ** (1 / 0.5)
                target = (sharp / sharp.sum(dim=1, keepdim=True)).detach()
            inputs, targets = torch.cat([x, u, u_2], dim=0), torch.cat([label, target, target], dim=0)
            order, share = batch["order"], batch["share"].item()
            mixed = share * inputs + (1 - share) * inputs[order]
            mixed_target = share * targets + (1 - share) * targets[order]
            logits = [self.net(part) for part in torch.split(mixed, 32)]
            logits_x, logits_u = logits[0], torch.cat(logits[1:], dim=0)
            of_x = -torch.mean(torch.sum(F.log_softmax(logits_x, dim=1) * mixed_target[:32], dim=1))
            of_u = torch.mean((torch.softmax(logits_u, dim=1) - mixed_target[32:]) ** 2)
            loss = of_x + 75 * of_u
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            follow_one_by_one(self.average.parameters(), self.net.parameters(), 0.999)
            return {"of_x": of_x.item(), "of_u": of_u.item()}

        return step

    def expert(self) -> Step:
        weights, averages, eye = list(self.net.parameters()), list(self.average.parameters()), torch.eye(10)
        optimizer = torch.optim.Adam(weights, 2e-3, fused=True)

        def step(batch: Batch) -> Mapping[str, Any]:
            inputs, order, share = torch.cat([batch["x"], batch["u"], batch["u_2"]]), batch["order"], batch["share"]
            with torch.no_grad():
                one, two = torch.softmax(self.net(inputs[32:]), 1).split(32)
                sharp = ((one + two) / 2).square_()
                target = sharp / sharp.sum(1, keepdim=True)
                targets = torch.cat([eye[batch["label"]], target, target])
                mixed = torch.lerp(inputs[order], inputs, share)
                mixed_target = torch.lerp(targets[order], targets, share)
            logits = self.net(mixed)
            of_x = F.cross_entropy(logits[:32], mixed_target[:32])
            of_u = F.mse_loss(torch.softmax(logits[32:], 1), mixed_target[32:])
            (of_x + 75 * of_u).backward()
            optimizer.step()
            optimizer.zero_grad()
            follow(averages, weights, 0.999)
            return {"of_x": of_x.detach(), "of_u": of_u.detach()}

        return step


WORKLOADS: tuple[type[Workload], ...] = (Dann, InfoGan, MixMatch)
