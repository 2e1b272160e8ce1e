"""A published step as a pure function, and what is needed to take the same steps by an example's spec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from tests.conformance.pure.mathematics import World

EXAMPLES = Path(__file__).parents[3] / "examples"
Tensors = Mapping[str, torch.Tensor]
Advance = Callable[[World, Tensors], tuple[World, Tensors]]
"""From what there was, the batch and what was drawn, to what there is then, and the losses."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Reference:
    """One of the examples, and the function that means the same."""

    name: str
    file: str
    """The spec, below the folder of the examples."""
    advance: Advance
    mutants: Mapping[str, Advance]
    """The function with a mistake that raises no error."""
    shapes: Mapping[str, tuple[int, ...]]
    """Of the inputs of floats."""
    classes: Mapping[str, tuple[tuple[int, ...], int]] = field(default_factory=dict)
    """Of the inputs of whole numbers, with how many there are to draw from."""
    losses: tuple[str, ...]
    drawn: tuple[str, ...] = ()
    """The random ops, which are returned beside the losses so that the function can use the same numbers."""
    settings: tuple[str, ...] = ()
    """Overrides: intervals that ten steps reach."""

    @property
    def path(self) -> Path:
        """Return where the spec is."""
        return EXAMPLES / self.file

    def overrides(self) -> list[str]:
        """Return the settings, and the outputs that are compared or handed on; nothing is shown as images."""
        return [*self.settings, "run.images=null", f"outputs=[{', '.join((*self.losses, *self.drawn))}]"]

    def batches(self, count: int = 10) -> Iterator[Tensors]:
        """Yield batches of numbers, the same every time."""
        generator = torch.Generator().manual_seed(11)
        for _ in range(count):
            yield {
                **{name: torch.randn(shape, generator=generator).double() for name, shape in self.shapes.items()},
                **{name: torch.randint(m, shape, generator=generator) for name, (shape, m) in self.classes.items()},
            }
