"""Three training steps by hand, as tutorials write them and as an expert would, each with the spec that means the same.

The noise of a step is part of its batch, so that all versions of it can be compared number by number.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import nn

Batch = dict[str, torch.Tensor]
Step = Callable[[Batch], Mapping[str, Any]]
kernels: Any = torch
"""Operators on lists of tensors, which PyTorch does not export."""
SPECS = Path(__file__).parent / "specs"


class Workload(ABC):
    """Nets with their initial weights, and the loops that train them. Make a new one for every loop."""

    name: ClassVar[str]
    exact: ClassVar[bool] = True
    """Whether the expert sums in the order of the spec, so that our numbers are equal to the last bit."""
    period: ClassVar[int] = 1
    """After how many steps the same work comes again."""
    nets: dict[str, nn.Module]
    """By the names they have in the spec."""

    @property
    def spec(self) -> Path:
        """Return the file of the spec."""
        return SPECS / f"{self.name}.yaml"

    @property
    def device(self) -> torch.device:
        """Return where the nets are."""
        return next(next(iter(self.nets.values())).parameters()).device

    def to(self, device: torch.device | str) -> Self:
        """Move the nets, which stay the same, and constants to a device."""
        for name, held in vars(self).items():
            if isinstance(held, nn.Module | torch.Tensor):
                setattr(self, name, held.to(device))
        return self

    @abstractmethod
    def batch(self, generator: torch.Generator) -> Batch:
        """Draw a batch."""

    def batches(self, count: int) -> list[Batch]:
        """Return batches, the same every time, on the device."""
        generator = torch.Generator().manual_seed(1)
        drawn = (self.batch(generator) for _ in range(count))
        return [{name: value.to(self.device) for name, value in each.items()} for each in drawn]

    @abstractmethod
    def idiom(self) -> Step:
        """Return the step as tutorials write it, losses logged as Python numbers."""

    @abstractmethod
    def expert(self) -> Step:
        """Return the step without avoidable work: no unused gradients, fused kernels, no wait for a number."""


class MlpGan(Workload):
    """A GAN of fully connected nets in DCGAN's order, batch 64."""

    name = "mlp-gan"

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.g = nn.Sequential(
            *(nn.Linear(100, 128), nn.LeakyReLU(0.2)),
            *(nn.Linear(128, 256), nn.BatchNorm1d(256, eps=0.8), nn.LeakyReLU(0.2)),
            *(nn.Linear(256, 512), nn.BatchNorm1d(512, eps=0.8), nn.LeakyReLU(0.2)),
            *(nn.Linear(512, 784), nn.Tanh()),
        )
        self.d = nn.Sequential(
            *(nn.Linear(784, 512), nn.LeakyReLU(0.2)),
            *(nn.Linear(512, 256), nn.LeakyReLU(0.2)),
            *(nn.Linear(256, 1), nn.Sigmoid()),
        )
        self.nets = {"generator": self.g, "discriminator": self.d}
        self.ones, self.zeros = torch.ones(64, 1), torch.zeros(64, 1)

    def batch(self, generator: torch.Generator) -> Batch:
        image = torch.rand(64, 784, generator=generator) * 2 - 1
        return {"image": image, "z": torch.randn(64, 100, generator=generator)}

    def optimizers(self, fused: bool | None) -> tuple[torch.optim.Optimizer, torch.optim.Optimizer]:
        """Return those of the generator and of the discriminator."""
        g, d = (torch.optim.Adam(net.parameters(), 2e-4, (0.5, 0.999), fused=fused) for net in (self.g, self.d))
        return g, d

    def judge(self, real: torch.Tensor, fake: torch.Tensor) -> Sequence[torch.Tensor]:
        """Return what the expert's critic says of images and of generated ones."""
        return self.d(torch.cat([real, fake])).chunk(2)

    def idiom(self) -> Step:
        opt_g, opt_d = self.optimizers(fused=None)
        criterion = nn.BCELoss()

        def step(batch: Batch) -> Mapping[str, Any]:
            self.d.zero_grad()
            output = self.d(batch["image"])
            real = criterion(output, self.ones)
            real.backward()
            scores = [output.mean().item()]
            fake = self.g(batch["z"])
            output = self.d(fake.detach())
            false = criterion(output, self.zeros)
            false.backward()
            scores.append(output.mean().item())
            opt_d.step()
            self.g.zero_grad()
            output = self.d(fake)
            loss = criterion(output, self.ones)
            loss.backward()
            scores.append(output.mean().item())
            opt_g.step()
            return {"d_loss": (real + false).item(), "g_loss": loss.item(), "scores": scores}

        return step

    def expert(self) -> Step:
        opt_g, opt_d = self.optimizers(fused=True)
        weights_of_d = list(self.d.parameters())

        def step(batch: Batch) -> Mapping[str, Any]:
            fake = self.g(batch["z"])
            on_real, on_fake = self.judge(batch["image"], fake.detach())
            d_loss = F.binary_cross_entropy(on_real, self.ones) + F.binary_cross_entropy(on_fake, self.zeros)
            d_loss.backward()
            opt_d.step()
            opt_d.zero_grad()
            require(weights_of_d, False)
            g_loss = F.binary_cross_entropy(self.d(fake), self.ones)
            g_loss.backward()
            opt_g.step()
            opt_g.zero_grad()
            require(weights_of_d, True)
            return {"d_loss": d_loss.detach(), "g_loss": g_loss.detach()}

        return step


class AveragedMlp(Workload):
    """A small classifier, batch 16, with clipped gradients and an average of its weights."""

    name = "averaged-mlp"

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.average = copy.deepcopy(self.net)
        self.nets = {"classifier": self.net, "averaged": self.average}

    def batch(self, generator: torch.Generator) -> Batch:
        x = torch.randn(16, 32, generator=generator)
        return {"x": x, "label": torch.randint(10, (16,), generator=generator)}

    def idiom(self) -> Step:
        optimizer = torch.optim.Adam(self.net.parameters(), 1e-3)
        criterion = nn.CrossEntropyLoss()

        def step(batch: Batch) -> Mapping[str, Any]:
            optimizer.zero_grad()
            loss = criterion(self.net(batch["x"]), batch["label"])
            loss.backward()
            nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            optimizer.step()
            follow_one_by_one(self.average.parameters(), self.net.parameters(), 0.999)
            return {"loss": loss.item()}

        return step

    def expert(self) -> Step:
        weights, averages = list(self.net.parameters()), list(self.average.parameters())
        optimizer = torch.optim.Adam(weights, 1e-3, fused=True)

        def step(batch: Batch) -> Mapping[str, Any]:
            loss = F.cross_entropy(self.net(batch["x"]), batch["label"])
            loss.backward()
            clip(weights)
            optimizer.step()
            optimizer.zero_grad()
            follow(averages, weights, 0.999)
            return {"loss": loss.detach()}

        return step


class Byol(Workload):
    """BYOL on vectors, batch 128: two views, BatchNorm in all nets, a target that follows the encoder."""

    name = "byol"

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.encoder = nn.Sequential(
            *(nn.Linear(128, 256), nn.BatchNorm1d(256), nn.ReLU()),
            *(nn.Linear(256, 256), nn.BatchNorm1d(256), nn.ReLU()),
            nn.Linear(256, 64),
        )
        self.predictor = nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 64))
        self.target = copy.deepcopy(self.encoder)
        self.nets = {"encoder": self.encoder, "predictor": self.predictor, "target": self.target}

    def batch(self, generator: torch.Generator) -> Batch:
        return {name: torch.randn(128, 128, generator=generator) for name in ("one", "two")}

    def weights(self) -> list[nn.Parameter]:
        """Return the weights that are trained."""
        return list(chain(self.encoder.parameters(), self.predictor.parameters()))

    def idiom(self) -> Step:
        optimizer = torch.optim.Adam(self.weights(), 3e-4)

        def step(batch: Batch) -> Mapping[str, Any]:
            online_1, online_2 = (self.predictor(self.encoder(batch[view])) for view in ("one", "two"))
            with torch.no_grad():
                target_1, target_2 = self.target(batch["one"]), self.target(batch["two"])
                target_1.detach_()
                target_2.detach_()
            loss = apart(online_1, F.normalize(target_2, dim=-1)) + apart(online_2, F.normalize(target_1, dim=-1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            follow_one_by_one(self.target.parameters(), self.encoder.parameters(), 0.99)
            return {"loss": loss.item()}

        return step

    def expert(self) -> Step:
        optimizer = torch.optim.Adam(self.weights(), 3e-4, fused=True)
        followed, followers = list(self.encoder.parameters()), list(self.target.parameters())

        def step(batch: Batch) -> Mapping[str, Any]:
            with torch.no_grad():
                target_1 = F.normalize(self.target(batch["one"]), dim=-1)
                target_2 = F.normalize(self.target(batch["two"]), dim=-1)
            online_1, online_2 = self.predictor(self.encoder(batch["one"])), self.predictor(self.encoder(batch["two"]))
            loss = apart(online_1, target_2) + apart(online_2, target_1)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            follow(followers, followed, 0.99)
            return {"loss": loss.detach()}

        return step


def require(weights: Iterable[nn.Parameter], flag: bool) -> None:
    """Say whether gradients of these weights are wanted."""
    for weight in weights:
        weight.requires_grad_(flag)


def apart(online: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the squared distance of two directions, averaged over the batch; the target's length is 1."""
    return (2 - 2 * (F.normalize(online, dim=-1) * target).sum(-1)).mean()


def clip(weights: list[nn.Parameter], parts: int = 1) -> None:
    """Make the mean of gradients that were summed over some parts no longer than 1, in place."""
    shorten([weight.grad for weight in weights], parts)


def shorten(gradients: Sequence[torch.Tensor | None], parts: int = 1) -> None:
    """Make the mean of gradients in a list, that were summed over some parts, no longer than 1, in place."""
    norm = torch.linalg.vector_norm(torch.stack(kernels._foreach_norm(gradients)))
    if parts > 1:
        factor = (1.0 / (norm / parts + 1e-6)).clamp(max=1.0) / parts
    else:
        factor = (1.0 / (norm + 1e-6)).clamp(max=1.0)
    kernels._foreach_mul_(gradients, factor)


@torch.no_grad()
def follow(averages: list[nn.Parameter], weights: list[nn.Parameter], decay: float) -> None:
    """Move an average, all tensors in one call."""
    kernels._foreach_lerp_(averages, weights, 1 - decay)


@torch.no_grad()
def follow_one_by_one(averages: Iterable[nn.Parameter], weights: Iterable[nn.Parameter], decay: float) -> None:
    """Move an average, tensor by tensor."""
    for average, weight in zip(averages, weights, strict=True):
        average.mul_(decay).add_(weight, alpha=1 - decay)


WORKLOADS: tuple[type[Workload], ...] = (MlpGan, AveragedMlp, Byol)
