"""Contents of cells: what the weights of a step hold, at which version, and who wrote it."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from runtime.support.findings import split_version


class Contents:
    """The tensors of the cells of a step: ``net.params``, ``net.buffers``, ``net.optimizer``, ``tied(a, b)``.

    Versions count the writes of this step. ``kept`` holds what each tensor of a model was left with by the last write.
    """

    def __init__(self, models: Mapping[str, nn.Module], optimizers: Mapping[str, Any]) -> None:
        self.models, self.optimizers = models, optimizers
        self.start()

    def start(self) -> None:
        """Begin a step: every cell is at version 0."""
        self.versions: dict[str, int] = {}
        self.writers: dict[str, str] = {}
        self.strangers: dict[str, str] = {}  # cells written by no op, with the op that ran when it was seen
        self.holders = collections.Counter(id(p) for model in self.models.values() for p in model.parameters())
        self.names = {id(tensor): name for name, tensor in reversed(list(self.everything()))}
        self.kept = {id(tensor): tensor.detach().clone() for _, tensor in self.everything()}

    def everything(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield every parameter and buffer with its name, ``net.0.weight``."""
        for model in self.models:
            yield from self.tensors(f"{model}.params").items()
            yield from self.tensors(f"{model}.buffers").items()
            yield from self.shared((model,)).items()

    def tensors(self, cell: str) -> dict[str, torch.Tensor]:
        """Return the tensors of a cell by name; of slots those that an optimizer keeps for its parameters."""
        if cell.startswith("tied("):
            return self.shared(cell.removeprefix("tied(").removesuffix(")").split(", "))
        owner, _, kind = cell.rpartition(".")
        if kind == "optimizer":
            return dict(self.slots(owner))
        model = self.models[owner]
        if kind == "buffers":
            return {f"{owner}.{name}": buffer for name, buffer in model.named_buffers()}
        named = model.named_parameters()
        return {f"{owner}.{name}": each for name, each in named if self.holders[id(each)] == 1}

    def shared(self, models: Iterable[str]) -> dict[str, torch.Tensor]:
        """Return the parameters that models share with others."""
        named = ((f"{model}.{name}", p) for model in models for name, p in self.models[model].named_parameters())
        return {name: each for name, each in named if self.holders[id(each)] > 1}

    def slots(self, optimizer: str) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the slots of an optimizer, ``exp_avg of net.0.weight``."""
        stepped = self.optimizers[optimizer]
        for slot, values in stepped.slots.items():
            for parameter, value in zip(stepped.parameters, values, strict=True):
                if isinstance(value, torch.Tensor):
                    yield f"{slot} of {self.names.get(id(parameter), 'a parameter')}", value

    def before(self, cell: str) -> list[torch.Tensor]:
        """Return what the last write left in a cell of a model."""
        return [self.kept[id(each)] for each in self.tensors(cell).values() if id(each) in self.kept]

    def write(self, op: str, writes: Iterable[str]) -> None:
        """Take note of an op's writes, ``net.params@1``: what is there now is what it left."""
        for cell, version in map(split_version, writes):
            self.versions[cell], self.writers[cell] = version, op
            self.strangers.pop(cell, None)
            for tensor in () if cell.endswith(".optimizer") else self.tensors(cell).values():
                self.kept[id(tensor)] = tensor.detach().clone()

    def announce(self, writes: Iterable[str]) -> None:
        """Increment autograd's version counters for all writes to weights, however they were made."""
        for cell, _ in map(split_version, writes):
            if not cell.endswith((".optimizer", ".buffers")):
                torch.autograd.graph.increment_version(tuple(self.tensors(cell).values()))

    def find_changed(self, cell: str) -> str:
        """Return the name of the first tensor of a cell that is not as the last write left it; empty if all are.

        Whole numbers, such as a count of calls, have no part in a gradient.
        """
        tensors = ((name, each) for name, each in self.tensors(cell).items() if each.is_floating_point())
        return next((name for name, each in tensors if not is_same(each, self.kept.get(id(each)))), "")

    def watch_strangers(self, op: str, reads: Iterable[str]) -> None:
        """Take note of the op after which weights are first seen changed though no op wrote them."""
        for cell, _ in map(split_version, reads):
            if cell not in self.strangers and self.find_changed(cell):
                self.strangers[cell] = op


def is_same(one: torch.Tensor, other: torch.Tensor | None) -> bool:
    """Return whether two tensors hold the same numbers, nan for nan; one that is not known counts as the same."""
    if other is None or one.shape != other.shape:
        return other is None
    return bool(((one == other) | ((one != one) & (other != other))).all())
