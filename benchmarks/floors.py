"""Loops by hand for the steps that miss their goal: they do what the spec asks, in the least time that we know of.

They share no code with what is emitted. Nothing is checked, counted or kept that the numbers do not need, and the lists
of weights and slots are made before the first step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.classics import AccumulatedMlp, CycleGan
from benchmarks.workloads import Batch, Step, Workload, kernels, shorten

Tensors = Sequence[torch.Tensor]


class Adam:
    """Adam by one call of the fused kernel, on lists that are made once."""

    def __init__(self, weights: Iterable[torch.Tensor], lr: float, betas: tuple[float, float] = (0.9, 0.999)) -> None:
        # Detached, they are the same memory, and no kernel that writes to them has to be told to record nothing.
        self.weights = [each.detach() for each in weights]
        self.means, self.squares = ([torch.zeros_like(each) for each in self.weights] for _ in range(2))
        self.counts = torch.zeros(len(self.weights), dtype=torch.float32)
        self.steps = list(self.counts.unbind())
        self.options = {"lr": lr, "beta1": betas[0], "beta2": betas[1], "weight_decay": 0.0, "eps": 1e-8}

    def step(self, gradients: Tensors) -> None:
        """Move the weights."""
        self.counts.add_(1)
        lists = self.weights, gradients, self.means, self.squares, [], self.steps
        kernels._fused_adam_(*lists, **self.options, amsgrad=False, maximize=False)


def translate(made: CycleGan) -> Step:
    """Return CycleGAN's step: one call of each critic, on real and generated images, serves all updates.

    The gradients of both critics are one pass, and all weights are moved by one call.
    """
    translators = [*made.to_b.parameters(), *made.to_a.parameters()]
    critics = [*made.critic_a.parameters(), *made.critic_b.parameters()]
    adam = Adam([*translators, *critics], 2e-4, (0.5, 0.999))
    valid = torch.ones(4, 1, 6, 6)
    sides = torch.cat([valid, torch.zeros(4, 1, 6, 6)])

    def step(batch: Batch) -> Mapping[str, Any]:
        a, b = batch["a"], batch["b"]
        fake_b, same_b = made.to_b(torch.cat([a, b])).split(4)
        fake_a, same_a = made.to_a(torch.cat([b, a])).split(4)
        on_a, on_b = made.critic_a(torch.cat([a, fake_a])), made.critic_b(torch.cat([b, fake_b]))
        fooled = F.mse_loss(on_b[4:], valid) + F.mse_loss(on_a[4:], valid)
        cycle = F.l1_loss(made.to_a(fake_b), a) + F.l1_loss(made.to_b(fake_a), b)
        loss = fooled + 10 * cycle + 5 * (F.l1_loss(same_a, a) + F.l1_loss(same_b, b))
        gradients = torch.autograd.grad(loss, translators, retain_graph=True)
        loss_a, loss_b = 2 * F.mse_loss(on_a, sides), 2 * F.mse_loss(on_b, sides)
        adam.step(gradients + torch.autograd.grad(loss_a + loss_b, critics))
        return {"loss": loss.detach(), "loss_a": loss_a.detach(), "loss_b": loss_b.detach()}

    return step


def accumulate(made: AccumulatedMlp) -> Step:
    """Return the small classifier's step: the first gradients of a window are the list that the next are added to."""
    weights, averages = list(made.net.parameters()), [each.detach() for each in made.average.parameters()]
    adam, taken, total = Adam(weights, 1e-3), 0, ()

    def step(batch: Batch) -> Mapping[str, Any]:
        nonlocal taken, total
        loss = F.cross_entropy(made.net(batch["x"]), batch["label"])
        gradients = torch.autograd.grad(loss, weights)
        if taken == 0:
            total = gradients
        else:
            kernels._foreach_add_(total, gradients)
        taken += 1
        if taken == made.period:  # the sum becomes the mean by the factor that clips
            shorten(total, made.period)
            adam.step(total)
            kernels._foreach_lerp_(averages, adam.weights, 1 - 0.999)
            taken = 0
        return {"loss": loss.detach()}

    return step


FLOORS: Mapping[type[Workload], Callable[[Any], Step]] = {CycleGan: translate, AccumulatedMlp: accumulate}
"""By the step that each takes."""
