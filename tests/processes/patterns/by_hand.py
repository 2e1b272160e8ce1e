"""The nine patterns as loops by hand, each as it would be written for one process, with its nets wrapped.

Where that is wrong, a second loop is right under DistributedDataParallel.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from itertools import pairwise
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

Batch: TypeAlias = Mapping[str, torch.Tensor]
Loop: TypeAlias = Callable[..., None]
"""A loop: given what spreads it, its batches, and every net with its optimizer."""


@dataclass(frozen=True, kw_only=True)
class Alone:
    """One process, which has all rows. Wrappers ignore options that they do not have."""

    unused: bool = False
    """DistributedDataParallel: `find_unused_parameters`."""
    whole: bool = False
    """FSDP2: the net is gathered as a whole, and not by layers."""

    def wrap(self, net: nn.Module) -> nn.Module:
        """Return the net that the loop calls."""
        return net

    def backward(self, loss: torch.Tensor, *, retain_graph: bool = False) -> None:
        """Add the gradients of a loss to those that are there."""
        loss.backward(retain_graph=retain_graph)

    def no_sync(self, net: Any) -> AbstractContextManager[object]:
        """Leave the gradients of the backwards inside to each process."""
        return nullcontext()


class DDP(Alone):
    """DistributedDataParallel."""

    def wrap(self, net: nn.Module) -> nn.Module:
        return DistributedDataParallel(net, find_unused_parameters=self.unused)

    def no_sync(self, net: Any) -> AbstractContextManager[object]:
        return net.no_sync()


class FSDP2(Alone):
    """`fully_shard`."""

    def wrap(self, net: nn.Module) -> nn.Module:
        layers = [] if self.whole else [each for each in net.children() if [*each.parameters()]]
        for each in (*layers, net):
            fully_shard(each)
        return net

    @contextmanager
    def no_sync(self, net: Any) -> Generator[None]:
        net.set_requires_gradient_sync(False)
        yield
        net.set_requires_gradient_sync(True)


class Accelerate(Alone):
    """Accelerate, which wraps nets in DistributedDataParallel. Raises ImportError where it is not installed."""

    @cached_property
    def accelerator(self) -> Any:
        """Return the object that does all."""
        library = import_module("accelerate")
        options = library.DistributedDataParallelKwargs(find_unused_parameters=self.unused)
        return library.Accelerator(cpu=True, kwargs_handlers=[options])

    def wrap(self, net: nn.Module) -> nn.Module:
        return self.accelerator.prepare(net)

    def backward(self, loss: torch.Tensor, *, retain_graph: bool = False) -> None:
        self.accelerator.backward(loss, retain_graph=retain_graph)

    def no_sync(self, net: Any) -> AbstractContextManager[object]:
        return self.accelerator.no_sync(net)


def take_one_backward(by: Alone, batches: Sequence[Batch], net: nn.Module, sgd: torch.optim.Optimizer) -> None:
    for batch in batches:
        sgd.zero_grad()
        by.backward(F.mse_loss(net(batch["x"]), batch["y"]))
        sgd.step()


def take_two_forwards(by: Alone, batches: Sequence[Batch], net: nn.Module, sgd: torch.optim.Optimizer) -> None:
    for batch in batches:
        sgd.zero_grad()
        first, second = net(batch["x"]), net(batch["z"])
        by.backward(F.mse_loss(first, batch["y"]))
        by.backward(F.mse_loss(second, batch["y"]))
        sgd.step()


def add_two_forwards(by: Alone, batches: Sequence[Batch], net: nn.Module, sgd: torch.optim.Optimizer) -> None:
    for batch in batches:
        sgd.zero_grad()
        first, second = net(batch["x"]), net(batch["z"])
        by.backward(F.mse_loss(first, batch["y"]) + F.mse_loss(second, batch["y"]))
        sgd.step()


def take_gradients(by: Alone, batches: Sequence[Batch], net: nn.Module, sgd: torch.optim.Optimizer) -> None:
    weights = list(net.parameters())
    for batch in batches:
        loss = F.mse_loss(net(batch["x"]), batch["y"])
        for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.grad = gradient
        sgd.step()


def reduce_gradients(by: Alone, batches: Sequence[Batch], net: nn.Module, sgd: torch.optim.Optimizer) -> None:
    weights = list(net.parameters())
    for batch in batches:
        loss = F.mse_loss(net(batch["x"]), batch["y"])
        for weight, gradient in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            dist.all_reduce(gradient)
            weight.grad = gradient / dist.get_world_size()
        sgd.step()


def take_two_backwards(by: Alone, batches: Sequence[Batch], net: nn.Module, sgd: torch.optim.Optimizer) -> None:
    for batch in batches:
        sgd.zero_grad()
        out = net(batch["x"])
        by.backward(F.mse_loss(out, batch["y"]), retain_graph=True)
        by.backward(F.l1_loss(out, batch["y"]))
        sgd.step()


def add_two_losses(by: Alone, batches: Sequence[Batch], net: nn.Module, sgd: torch.optim.Optimizer) -> None:
    for batch in batches:
        sgd.zero_grad()
        out = net(batch["x"])
        by.backward(F.mse_loss(out, batch["y"]) + F.l1_loss(out, batch["y"]))
        sgd.step()


def take_two_counts(by: Alone, batches: Sequence[Batch], net: nn.Module, sgd: torch.optim.Optimizer) -> None:
    for batch in batches:
        sgd.zero_grad()
        out = net(batch["x"])
        by.backward(F.mse_loss(out, batch["y"]) + F.cross_entropy(out, batch["label"], ignore_index=-1))
        sgd.step()


def average_labels(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return a loss whose mean over processes is the mean over the labels of all."""
    count = (labels >= 0).sum()
    dist.all_reduce(count)
    return F.cross_entropy(scores, labels, ignore_index=-1, reduction="sum") * dist.get_world_size() / count


def share_counts(by: Alone, batches: Sequence[Batch], net: nn.Module, sgd: torch.optim.Optimizer) -> None:
    for batch in batches:
        sgd.zero_grad()
        out = net(batch["x"])
        by.backward(F.mse_loss(out, batch["y"]) + average_labels(out, batch["label"]))
        sgd.step()


def take_windows(by: Alone, batches: Sequence[Batch], net: nn.Module, sgd: torch.optim.Optimizer) -> None:
    for first, second in zip(batches[::2], batches[1::2], strict=True):
        sgd.zero_grad()
        with by.no_sync(net):
            by.backward(F.mse_loss(net(first["x"]), first["y"]) / 2)
        by.backward(F.mse_loss(net(second["x"]), second["y"]) / 2)
        sgd.step()


def take_synced_windows(by: Alone, batches: Sequence[Batch], net: nn.Module, sgd: torch.optim.Optimizer) -> None:
    for number, batch in enumerate(batches):
        by.backward(F.mse_loss(net(batch["x"]), batch["y"]) / 2)
        if number % 2:
            sgd.step()
            sgd.zero_grad()


def take_penalties(by: Alone, batches: Sequence[Batch], critic: nn.Module, sgd: torch.optim.Optimizer) -> None:
    for batch in batches:
        sgd.zero_grad()
        real, fake, part = batch["x"], batch["z"], batch["part"]
        mixed = (part * real + (1 - part) * fake).requires_grad_()
        (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
        penalty = 10 * (slope.norm(dim=1) - 1).square().mean()
        by.backward(critic(fake).mean() - critic(real).mean() + penalty)
        sgd.step()


def judge(scores: torch.Tensor, target: float) -> torch.Tensor:
    """Return the loss of scores that should all be one number."""
    return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, target))


def train_gan(
    by: Alone,
    batches: Sequence[Batch],
    generator: nn.Module,
    sgd_g: torch.optim.Optimizer,
    discriminator: nn.Module,
    sgd_d: torch.optim.Optimizer,
) -> None:
    for batch in batches:
        fake = generator(batch["z"])
        sgd_d.zero_grad()
        by.backward(judge(discriminator(batch["x"]), 1) + judge(discriminator(fake.detach()), 0))
        sgd_d.step()
        sgd_g.zero_grad()
        by.backward(judge(discriminator(fake), 1))  # the next step drops what this adds for the discriminator
        sgd_g.step()


class Detector(nn.Module):
    """A net whose head runs on some rows only."""

    def __init__(self, trunk: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.trunk, self.head = trunk, head

    def forward(self, x: torch.Tensor, chosen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the result for all rows, and the scores of those that are chosen if there are any."""
        out = self.trunk(x)
        return out, self.head(out[chosen]) if chosen.any() else None


def take_rare_rows(by: Alone, batches: Sequence[Batch], net: nn.Module, sgd: torch.optim.Optimizer) -> None:
    for batch in batches:
        sgd.zero_grad()
        chosen = batch["rare"] >= 0
        out, scores = net(batch["x"], chosen)
        loss = F.mse_loss(out, batch["y"])
        if scores is not None:
            loss = loss + F.cross_entropy(scores, batch["rare"][chosen])
        by.backward(loss)
        sgd.step()


def score_all_rows(by: Alone, batches: Sequence[Batch], net: nn.Module, sgd: torch.optim.Optimizer) -> None:
    for batch in batches:
        sgd.zero_grad()
        out, scores = net(batch["x"], torch.ones_like(batch["rare"], dtype=torch.bool))
        by.backward(F.mse_loss(out, batch["y"]) + average_labels(scores, batch["rare"]))
        sgd.step()


def make_layers(*widths: int) -> nn.Sequential:
    """Return linear layers with tanh between them."""
    linear = [nn.Linear(first, second) for first, second in pairwise(widths)]
    return nn.Sequential(*[each for layer in linear for each in (layer, nn.Tanh())][:-1])
