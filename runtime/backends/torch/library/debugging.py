"""Checks of a debug build: is every number finite, and is every gradient taken at the weights its forwards read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from runtime.backends.torch.library.contents import Contents
from runtime.backends.torch.library.ranges import fault_of, first_row, ranges_of
from runtime.support.checking import StepChecks
from runtime.support.findings import NonFiniteReport, split_version


class Checks(StepChecks):
    """The checks of a step. None of them changes a number; the first that fails raises a Finding."""

    def __init__(self, models: Mapping[str, nn.Module], optimizers: Mapping[str, Any]) -> None:
        self.held = Contents(models, optimizers)
        super().__init__(self.held, optimizers)

    def is_tensor(self, value: object) -> bool:
        """Return whether a value is a tensor."""
        return isinstance(value, torch.Tensor)

    def shape_of(self, value: Any) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return tuple(value.shape)

    def fault_of(self, value: object) -> str:
        """Return ``nan`` where a value holds one, else ``inf`` where it holds one, else nothing."""
        return fault_of(value)

    def first_row(self, value: object) -> str:
        """Return where along the first axis a tensor is not finite for the first time."""
        return first_row(value)

    def ranges_of(self, title: str, values: Mapping[str, object]) -> tuple[str, ...]:
        """Return one note with a line per value under a title."""
        return ranges_of(title, values)

    def start(self) -> None:
        """Begin a step; weights that are not finite before it are reported once they matter."""
        self.flowing: dict[str, str] = {}  # by value: what is wrong with its gradient, nothing where it is finite
        super().start()

    def watch(self, name: str, value: Any) -> None:
        """Watch the gradient that will flow back into a tensor."""
        if value.requires_grad:
            value.register_hook(lambda gradient: self.flowing.__setitem__(name, fault_of(gradient)))

    def flows(self) -> Mapping[str, str]:
        """Return what is wrong with the gradients that flowed back, by value; nothing where one is finite."""
        return self.flowing

    def rate_of(self, optimizer: Any) -> str:
        """Return the learning rate of the last update, and how many there were."""
        return f"lr {optimizer.options.get('lr')}, update {optimizer.applied}"

    def defined(
        self,
        op: str,
        kind: str,
        outputs: Mapping[str, object],
        inputs: Mapping[str, object],
        reads: tuple[str, ...] = (),
        writes: tuple[str, ...] = (),
    ) -> None:
        """Check what an op made, and the statistics it wrote: nan is found here, inf where it may not be."""
        self.held.watch_strangers(op, reads)
        super().defined(op, kind, outputs, inputs, reads, writes)

    def before_gradient(self, op: str, name: str, loss: object, through: Mapping[str, Sequence[str]]) -> None:
        """Check a loss, and that the weights are still those that the forwards on the gradient's path read."""
        super().before_gradient(op, name, loss, through)
        for forward, reads in through.items():
            for cell, version in map(split_version, reads):
                self.check_version(op, name, forward, cell, version)
        self.flowing = {}

    def check_version(self, op: str, loss: str, forward: str, cell: str, version: int) -> None:
        """Check that a cell holds what a forward read of it."""
        writer, now = self.held.writers.get(cell, ""), self.held.versions.get(cell, 0)
        changed = self.held.find_changed(cell)
        if now == version and not changed:
            return
        message = f"op '{op}' (gradient): the forward '{forward}' read {cell}@{version}, which is no longer there"
        if now != version:
            note = f"op '{writer}' wrote {cell}@{now} before the gradient of '{loss}' was taken"
            remedy = "no compiled plan has this order; the program was changed after it was compiled"
        else:
            seen = self.held.strangers.get(cell)
            when = f"while op '{seen}' ran, or before it" if seen else "after the last op that read it"
            note = f"'{changed}' was written by no op of the step, {when}"
            remedy = "look for hooks and functions of yours that write weights (`.data`, `torch.no_grad()`)"
        raise NonFiniteReport("GS262", op, message, (note,), remedy)

    def written(
        self, op: str, kind: str, inputs: Mapping[str, object], reads: tuple[str, ...], writes: tuple[str, ...]
    ) -> None:
        """Check what an op left in weights, statistics and slots, and tell autograd that it wrote."""
        super().written(op, kind, inputs, reads, writes)
        self.held.announce(writes)
