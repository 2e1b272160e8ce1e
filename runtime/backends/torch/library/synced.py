"""BatchNorm over the rows of all processes."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from runtime.backends.torch.library.processes import Replicas


class Summed(torch.autograd.Function):
    """The sum of a tensor over all processes; so is its gradient, as what each of them makes of it adds up."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Add up, once all are there."""
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Add up the gradients, in a way that has a gradient itself."""
        return Summed.apply(gradients[0].contiguous())


class SyncedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """BatchNorm whose statistics in training are those of all processes that take a step together."""

    replicas: Replicas | None = None

    def _check_input_dim(self, input: torch.Tensor) -> None:
        """Accept any rank: the spec has checked it."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the input, normalized over all axes but axis 1."""
        if not self.training or self.replicas is None or self.replicas.count == 1:
            return super().forward(input)
        axes = [axis for axis in range(input.dim()) if axis != 1]
        shape = [1, -1, *[1] * (input.dim() - 2)]
        count = input.new_tensor([input.numel() / input.shape[1]])
        dist.all_reduce(count)
        mean = Summed.apply(input.sum(axes)) / count
        apart = input - mean.view(shape)
        variance = Summed.apply(apart.square().sum(axes)) / count
        with torch.no_grad():
            assert self.running_mean is not None
            assert self.running_var is not None
            assert self.num_batches_tracked is not None
            assert self.momentum is not None
            self.num_batches_tracked.add_(1)
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance * count / (count - 1), self.momentum)
        normal = apart * (variance + self.eps).rsqrt().view(shape)
        if self.affine:
            normal = normal * self.weight.view(shape) + self.bias.view(shape)
        return normal


def synced(model: nn.Module, replicas: Replicas) -> nn.Module:
    """Let the layers of a model that are to do so normalize over all rows, and return it."""
    for each in model.modules():
        if isinstance(each, SyncedBatchNorm):
            each.replicas = replicas
    return model
