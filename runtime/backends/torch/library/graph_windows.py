"""Windows in a step that is captured as one graph: the sums stay the same tensors, and the host counts their rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from runtime.backends.torch.library.graph_numbers import number_on
from runtime.backends.torch.library.optimizers import require_gradients
from runtime.backends.torch.library.windows import Window, at_least_one, on_device, wide_type


class GraphWindow(Window):
    """A window that a graph adds to and takes from. Outside a graph it is what it derives from.

    Before a graph it gets sums, zero at first, and the rows in them as a tensor. Where it leaves out, or is spoiled by,
    gradients that are not committed, the device alone counts rows.
    """

    kept: Sequence[torch.Tensor] = ()  # its sums, the same tensors in every window
    gained, is_emptied = 0, False  # what the graph has added, and whether it began anew

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.known_rows = number_on(self.parameters[0].device if self.parameters else "cpu")

    def feed(self) -> None:
        """Make the sums ready, and compute how many rows they stand for."""
        if not self.kept:
            self.kept = [torch.zeros_like(p, dtype=wide_type(p.dtype)) for p in self.parameters]
        self.multiply()
        if not self.totals:
            for each in self.kept:
                each.zero_()
        elif self.totals[0] is not self.kept[0]:  # those of an eager step, or of a checkpoint
            for each, total in zip(self.kept, self.totals, strict=True):
                each.copy_(total)
        self.totals = self.kept
        device = self.parameters[0].device
        if self.guard == "none":
            self.known_rows.fill_(float(self.rows))
        else:
            self.rows, self.spoiled = on_device(self.rows, device), on_device(self.spoiled, device)
        if self.is_counted:
            self.count = torch.as_tensor(self.count, dtype=torch.float64, device=device)
        self.gained, self.is_emptied = 0, False

    def count_rows(self) -> None:
        """Count the rows that the graph has added, unless the device does."""
        if self.guard == "none" and not self.is_emptied:
            self.rows += self.gained
        elif self.guard == "none":
            self.rows = self.gained
        if self.is_emptied and not self.gained:
            super().drop()

    @torch.no_grad()
    def add(self, gradients: Sequence[Any], rows: int = 1, count: Any = 0, commits: torch.Tensor | None = None) -> None:
        """Add gradients."""
        if not torch.compiler.is_compiling():
            super().add(gradients, rows, count, commits)
            return
        require_gradients(gradients)
        if commits is not None:
            gradients = [torch.where(commits, each, 0) for each in gradients]
            count = torch.where(commits, count, 0)
            self.rows = self.rows + torch.where(commits, rows, 0)
            self.spoiled = self.spoiled | torch.logical_not(commits)
        for total, gradient in zip(self.totals, gradients, strict=True):
            total.add_(gradient.to(total.dtype), alpha=1 if self.is_counted else rows)
        if self.is_counted:
            self.count = self.count + count
        self.gained += rows

    @torch.no_grad()
    def take(self, fresh: bool = True) -> tuple[Any, ...]:
        """Return the mean or the sum, and begin anew."""
        if not torch.compiler.is_compiling():
            return super().take(fresh)
        share: Any = 1.0
        if self.is_mean and (self.is_counted or self.guard != "none"):
            share = at_least_one(self.count if self.is_counted else self.rows)
        elif self.is_mean:
            share = self.gained + (0.0 if self.is_emptied else self.known_rows)
        found = tuple((t / share).to(p.dtype) for t, p in zip(self.totals, self.parameters, strict=True))
        self.drop()
        return found

    def drop(self) -> None:
        """Forget what was added, and begin anew."""
        if not torch.compiler.is_compiling():
            super().drop()
            return
        for total in self.totals:
            total.zero_()
        if self.is_counted:
            self.count = torch.zeros_like(self.count)
        if self.guard != "none":
            self.rows, self.spoiled = torch.zeros_like(self.rows), torch.zeros_like(self.spoiled)
        self.gained, self.is_emptied = 0, True
