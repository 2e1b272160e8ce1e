"""Classes and functions a user might bring: used by the tests as ``tests.backends.torch.users:Name``."""

from __future__ import annotations

import logging
import threading

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Plain(nn.Module):
    """A linear layer."""

    def __init__(self, out: int = 3) -> None:
        super().__init__()
        self.layer = nn.Linear(4, out)

    def forward(self, x):
        return self.layer(x)

    def encode(self, x):
        return self.layer(x), torch.relu(self.layer(x))


class Attentive(nn.Module):
    """Attention of an input to itself, with or without dropout."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, dropout=dropout, batch_first=True)
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(self.attention(x[:, None], x[:, None], x[:, None], need_weights=False)[0][:, 0])


class Stateful(Plain):
    """Batch statistics and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(3), nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.norm(super().forward(x)))


class Lazy(nn.Module):
    """Layers that learn their sizes from the first input."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())

    def forward(self, x):
        return self.body(x)


class Branching(Plain):
    """Control flow that depends on values, and NumPy."""

    def forward(self, x):
        y = super().forward(x)
        return y * 2 if float(x.detach().numpy().sum()) > 0 else y


class Inverting(Plain):
    """A decomposition that exists for large numbers alone."""

    def forward(self, x):
        return super().forward(x) @ torch.linalg.cholesky((x.mean() - 5) * torch.eye(3))


class Raising(Plain):
    """An error two calls deep."""

    def forward(self, x):
        return self.check(super().forward(x))

    def check(self, y):
        if y.shape[0] > 4:
            raise ValueError("too many samples")
        return y


class Unused(Plain):
    """A parameter that has no part in the result."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(2, 2)


class Named(Plain):
    """Results by name, in another order."""

    def forward(self, x):
        return {"second": x, "first": super().forward(x)}


class Replacing(Plain):
    """A buffer that is replaced, not written."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(3))

    def forward(self, x):
        y = super().forward(x)
        self.center = 0.9 * self.center + 0.1 * y.detach().mean(0)
        return y


class Talking(Plain):
    """A model that logs a warning, as torch does when fake tensors do not fit."""

    def forward(self, x):
        logging.getLogger("torch").error("something about fake tensors")
        return super().forward(x)


class Tapped(nn.Module):
    """An inner layer worth a look."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = nn.Sequential(nn.Linear(4, 5), nn.Tanh()), nn.Linear(5, 3)

    def forward(self, x):
        return self.last(self.inner(x))


class NoModule:
    """Something that is no module."""


class Broken(nn.Module):
    """A constructor that fails."""

    def __init__(self) -> None:
        raise OSError("no such weights")


def half_squared(prediction, target):
    """Return (sum, count) of a loss."""
    difference = prediction - target
    return 0.5 * difference.square().sum(), difference.numel()


class Uncopyable(Plain):
    """A lock among the attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


class Scaling(Plain):
    """Changes in place of what it is given: all, a view, or what it made itself."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.rectify = way, nn.LeakyReLU(0.2, inplace=True)

    def forward(self, x):
        match self.way:
            case "layer":
                self.rectify(x)
            case "view":
                x[:, 0] = 0.0
            case "data":
                x.data.mul_(2)
            case "value":
                x.mul_(float(x.sum()))
            case "copy":
                x = self.rectify(x.clone())
        return super().forward(x)

    def stretch(self, x):
        return self(x), x.mul_(2)


def eager_loss(prediction, target):
    """Return a loss, and leave the difference in the prediction."""
    return prediction.sub_(target).square().mean()


def halve(gradients):
    """Return gradients, halved in place."""
    return [each.mul_(0.5) for each in gradients]


class Careful(Plain):
    """A model that fills in what is missing."""

    def forward(self, x):
        return super().forward(torch.nan_to_num(x))


class Rooted(Plain):
    """A square root of zero: its value is finite, its derivative is not."""

    def forward(self, x):
        return torch.sqrt(0 * super().forward(x))


def nothing_by_nothing(prediction, target):
    """Return a mean over no samples."""
    return (prediction - target)[:0].square().sum(), 0


class DataSGD(torch.optim.Optimizer):
    """SGD as many write it: through ``.data``, unseen by autograd."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data.sub_(group["lr"] * parameter.grad)


class Recomputing(nn.Module):
    """Two layers behind each other with BatchNorm and dropout, where asked for, that `torch.utils.checkpoint` runs."""

    def __init__(self, on: bool, norm: bool = False, drop: bool = False, keep: bool = True):
        super().__init__()
        self.on, self.keep = on, keep
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 4)
        self.norm = nn.BatchNorm1d(6) if norm else nn.Identity()
        self.drop = nn.Dropout(0.5) if drop else nn.Identity()
        with torch.no_grad():
            for count, parameter in enumerate((self.first.weight, self.last.weight), start=1):
                parameter.copy_(torch.sin(count * torch.arange(24.0) + 1).reshape(parameter.shape))

    def forward(self, x):
        if not self.on:
            return self.inner(x)
        return checkpoint(self.inner, x, use_reentrant=False, preserve_rng_state=self.keep)

    def inner(self, x):
        return self.last(self.drop(torch.tanh(self.norm(self.first(x)))))


class Generating(Plain):
    """Noise of a generator of its own, which nobody else knows."""

    def __init__(self) -> None:
        super().__init__()
        self.source = torch.Generator()

    def forward(self, x):
        y = super().forward(x)
        return y + torch.randn(y.shape, generator=self.source, dtype=y.dtype)
