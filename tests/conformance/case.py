"""A published training step: its spec, the loop an expert writes for it by hand, and which updates have to wait."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

Tensors = dict[str, torch.Tensor]
MakeOptimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


class Loop(ABC):
    """A training step by hand: torch.optim, ``.backward()``, ``zero_grad`` and ``detach``, each in its right place."""

    nets: dict[str, nn.Module]

    @abstractmethod
    def __init__(self, make: MakeOptimizer) -> None:
        """Make the nets in float64, and their optimizers."""

    @abstractmethod
    def step(self, **batch: torch.Tensor) -> Tensors:
        """Take one step and return its outputs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """A spec with its updates in one listing, and the loop that means the same."""

    name: str
    text: str
    """The spec; OPTIMIZER stands for the optimizer."""
    updates: tuple[str, ...]
    """The updates as they are listed."""
    loop: type[Loop]
    mutant: type[Loop]
    """The loop with a mistake that raises no error."""
    shapes: Mapping[str, tuple[int, ...]]
    """Of the inputs."""
    given: tuple[str, ...] = ()
    """Models that are handed to ``build`` as modules; the others are made of ``layers:`` and get the loop's weights."""
    listed: frozenset[str] = frozenset()
    """Updates that wait when they run as listed."""
    fewest: frozenset[str] = frozenset()
    """Updates that wait in the best order."""

    def spec(self, optimizer: str) -> str:
        """Return the document with the updates listed in order, behind all other ops."""
        lines = self.text.strip().replace("OPTIMIZER", optimizer).splitlines()
        places = {line.split(":")[0].strip(): line for line in lines if line.startswith("  ")}
        moved = [places[update] for update in self.updates]
        return "\n".join([*(line for line in lines if line not in moved), *moved]) + "\n"

    def batches(self, count: int = 10) -> list[Tensors]:
        """Return batches of normal numbers, the same every time."""
        generator = torch.Generator().manual_seed(11)
        return [{name: _draw(shape, generator) for name, shape in self.shapes.items()} for _ in range(count)]


def _draw(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)
