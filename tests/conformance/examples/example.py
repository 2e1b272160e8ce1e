"""An example's spec, and the loop that means the same, written by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

EXAMPLES = Path(__file__).parents[3] / "examples"
Tensors = dict[str, torch.Tensor]


class HandLoop(ABC):
    """A training step by hand; what the spec draws at random is handed to it."""

    nets: dict[str, nn.Module]

    @abstractmethod
    def __init__(self) -> None:
        """Make the nets in float64, and their optimizers."""

    @abstractmethod
    def step(self, batch: Tensors, drawn: Tensors) -> Tensors:
        """Take one step and return its losses."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Example:
    """One of the examples with all that is needed to run it beside a loop."""

    name: str
    loop: type[HandLoop]
    mutant: type[HandLoop]
    """The loop with a mistake that raises no error."""
    shapes: Mapping[str, tuple[int, ...]]
    """Of the inputs of floats."""
    classes: Mapping[str, tuple[tuple[int, ...], int]]
    """Of the inputs of whole numbers, with how many there are to draw from."""
    losses: tuple[str, ...]
    drawn: tuple[str, ...]
    """The random ops, which are returned beside the losses so that the loop can use the same numbers."""
    settings: tuple[str, ...] = ()
    """Overrides: no dropout, whose numbers no op returns, and intervals that ten steps reach."""
    allow: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """Return where the spec is."""
        return EXAMPLES / self.name / f"{self.name}.yaml"

    def overrides(self) -> list[str]:
        """Return the settings, and the outputs that are compared or handed on; nothing is shown as images."""
        return [*self.settings, "run.images=null", f"outputs=[{', '.join((*self.losses, *self.drawn))}]"]

    def batches(self, count: int = 10) -> list[Tensors]:
        """Return batches of numbers, the same every time."""
        generator = torch.Generator().manual_seed(11)
        return [self._draw(generator) for _ in range(count)]

    def _draw(self, generator: torch.Generator) -> Tensors:
        floats = {
            name: torch.randn(shape, generator=generator, dtype=torch.float64) for name, shape in self.shapes.items()
        }
        whole = {name: torch.randint(most, shape, generator=generator) for name, (shape, most) in self.classes.items()}
        return floats | whole
