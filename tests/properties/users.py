"""What random specs name by ``class:``, ``call: module:function`` and ``loss: module:function``, in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from graphspec.declare.graph import GraphSpec
from tests.oracle.initial import initial_state


class Coder(nn.Module):
    """tanh(W x + b)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size, size))
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the code of x."""
        return torch.tanh(nn.functional.linear(x, self.weight, self.bias))


class Reader(nn.Module):
    """The transposed W times x, every element scaled; W is another's."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size, size))
        self.scale = nn.Parameter(torch.zeros(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what a code means."""
        return (x @ self.weight) * self.scale


class Mirror(nn.Module):
    """W tanh(W x) + b: two layers that share their weight."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(size, size, bias=False), nn.Linear(size, size)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x seen twice."""
        return self.second(torch.tanh(self.first(x)))


class Idler(nn.Module):
    """tanh(W x), with a parameter that it does not use."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.spare = nn.Parameter(torch.zeros(size, size)), nn.Parameter(torch.zeros(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the code of x."""
        return torch.tanh(nn.functional.linear(x, self.weight))


class Recoder(Coder):
    """A coder that is recomputed when a gradient is taken: the input is kept, and W and b are read again."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the code of x."""
        return checkpoint(super().forward, x, use_reentrant=False)


class Louder(nn.Module):
    """tanh(W x), twice that in training: a module that several models may hold."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x heard in a mode."""
        return torch.tanh(nn.functional.linear(x, self.weight)) * (2 if self.training else 1)


class Keeper(Coder):
    """A coder: of Keras it is a layer with penalties and a constraint of its own, which elsewhere the spec says."""


class Speaker(nn.Module):
    """What an inner module makes of x, every element scaled; in training one third of x is added."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.inner, self.scale = Louder(size), nn.Parameter(torch.zeros(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x said in a mode."""
        found = self.inner(x) * self.scale
        return found + x / 3 if self.training else found


USED = (Coder, Reader, Mirror, Idler, Recoder, Keeper, Louder, Speaker)
CLASSES: Mapping[str, type[nn.Module]] = {f"{__name__}:{one.__name__}": one for one in USED}


def bend(x: torch.Tensor, strength: float = 1.0) -> torch.Tensor:
    """Return x / sqrt(1 + strength x^2)."""
    return x * torch.rsqrt(1 + strength * x.square())


def gap(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the mean of log(1 + (x - y)^2)."""
    return torch.log1p((x - y).square()).mean()


def kept(x: torch.Tensor, label: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sum of log(1 + x^2), its mean for every row, over the rows whose label is not 0, and how many."""
    keep = label != 0
    rows = torch.log1p(x.square()).reshape(x.shape[0], -1).mean(1)
    return (rows * keep).sum(), keep.sum()


def make_models(spec: GraphSpec, dtype: torch.dtype) -> Mapping[str, nn.Module]:
    """Return the models of classes with keyed initial weights, those tied that the spec says are.

    Models that share a parameter of an inner module share that module, which may be all that one of them is.
    """
    paths = {name: model.class_path("torch") for name, model in spec.models.items()}
    made = {name: CLASSES[path](**spec.models[name].args).to(dtype) for name, path in paths.items() if path}
    for name, module in list(made.items()):
        traits = spec.models[name].traits
        for tie in traits.ties if traits is not None else ():
            other, _, parameter = tie.partition(".")
            inner = parameter.rpartition(".")[0]
            shared = getattr(made[other], inner or parameter)
            if isinstance(shared, type(module)):
                made[name] = shared
            else:
                setattr(module, inner or parameter, shared)
    for name, module in made.items():
        shapes = {key: tuple(value.shape) for key, value in module.state_dict().items()}
        first = initial_state(spec, name, shapes, spec.seed)
        module.load_state_dict({key: torch.from_numpy(value) for key, value in first.items()})
    return made
