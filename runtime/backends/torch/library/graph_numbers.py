"""Numbers of the host in a step that is captured as one graph: written before the graph runs, read in it as tensors.

A Python number would be part of the graph: one that changes would make it another graph in every step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from runtime.support.decays import Decay


def number_on(device: torch.device | str) -> torch.Tensor:
    """Return room for a number on a device, in double precision where it has it."""
    return torch.zeros((), dtype=wide_on(device), device=device)


def wide_on(device: torch.device | str) -> torch.dtype:
    """Return the widest type of numbers of a device."""
    return torch.float32 if torch.device(device).type == "mps" else torch.float64


class Figures:
    """Numbers by name for every update of a step, in one tensor, in double precision where the device has it.

    It is on the device of what they are for: a kernel of a GPU cannot read elements of a tensor of the host.
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.names: tuple[str, ...] = ()
        self.device = torch.device(device)
        self.dtype = wide_on(device)
        self.last: list[tuple[float, ...]] = []
        self.make(0, 0)

    def make(self, updates: int, numbers: int) -> None:
        """Make a table of so many rows and columns; on the host, also an array that is its memory."""
        self.table = torch.zeros(updates, numbers, dtype=self.dtype, device=self.device)
        self.array = self.table.numpy() if self.device.type == "cpu" else None

    def write(self, numbers: Sequence[Mapping[str, float]]) -> None:
        """Write the numbers of the updates to come; other names, or more updates, than before make another tensor."""
        rows, names = [tuple(each.values()) for each in numbers], tuple(numbers[0])
        if rows == self.last and names == self.names:
            return
        if names != self.names or len(rows) != len(self.table):
            self.names = names
            self.make(len(rows), len(names))
        if self.array is None:
            self.table.copy_(torch.tensor(rows, dtype=self.dtype), non_blocking=True)  # the host does not wait
        else:
            self.array[:] = rows  # a tenth of the time of a tensor and a copy
        self.last = rows

    def read(self, turn: int | torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the numbers of an update by name, as tensors without axes; perhaps the device alone knows of which."""
        if not self.names:  # those of groups are with their parts
            return {}
        row = self.table.index_select(0, turn.reshape(1))[0] if isinstance(turn, torch.Tensor) else self.table[turn]
        return {name: row[place] for place, name in enumerate(self.names)}


class FedNumber:
    """A number of an op that follows a schedule; with a type it is a value of the step, on its device."""

    def __init__(
        self,
        read: Callable[[], Any],
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.number, self.device, self.dtype = read, device, dtype
        self.now = number_on("cpu")

    def place(self, device: torch.device) -> None:
        """Put the number where the kernels of a graph read it."""
        self.now = number_on(device)

    def feed(self) -> None:
        """Compute the number for the step that runs."""
        self.now.fill_(self.number())

    def __call__(self) -> Any:
        """Return the number: outside a graph as it is."""
        if torch.compiler.is_compiling():
            return self.now if self.dtype is None else self.now.to(self.device, self.dtype)
        read = self.number()
        return read if self.dtype is None else torch.full((), read, device=self.device, dtype=self.dtype)


class FedDecay(Decay):
    """A decay of an average that depends on how often it took place, in each iteration of a part."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.now = [number_on("cpu") for _ in self.ops]

    def place(self, device: torch.device) -> None:
        """Put the numbers where the kernels of a graph read them."""
        self.now = [number_on(device) for _ in self.ops]

    def feed(self) -> None:
        """Compute the numbers for the step that runs."""
        for number, each in enumerate(self.now, 1):
            each.fill_(super().__call__(number))

    def __call__(self, number: int = 1) -> Any:
        """Return the number of an iteration: outside a graph as it is."""
        return self.now[number - 1] if torch.compiler.is_compiling() else super().__call__(number)
