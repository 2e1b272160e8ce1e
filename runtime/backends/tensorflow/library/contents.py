"""Contents of cells: what the weights of a step hold, and what the last write has left in them."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from runtime.backends.tensorflow.library.modules import named_buffers, named_parameters
from runtime.support.findings import split_version


class Contents:
    """The variables of the cells of a step: ``net.params``, ``net.buffers``, ``net.optimizer``, ``tied(a, b)``.

    ``kept`` holds what each variable of a model was left with by the last write. Versions are not
    checked: a tape keeps what a forward has read.
    """

    def __init__(self, models: Mapping[str, Any], optimizers: Mapping[str, Any]) -> None:
        self.models, self.optimizers = models, optimizers
        self.trained = {name: named_parameters(model) for name, model in models.items()}
        self.others = {name: named_buffers(model) for name, model in models.items()}
        self.holders = collections.Counter(id(each) for named in self.trained.values() for each in named.values())
        self.names = {id(variable): name for name, variable in reversed(list(self.everything()))}
        self.start()

    def start(self) -> None:
        """Begin a step."""
        self.kept = {id(variable): variable.read_value() for _, variable in self.everything()}

    def everything(self) -> Iterator[tuple[str, tf.Variable]]:
        """Yield every parameter and buffer with its name, ``net.0.weight``."""
        for model in self.models:
            for named in (self.trained[model], self.others[model]):
                yield from ((f"{model}.{name}", variable) for name, variable in named.items())

    def tensors(self, cell: str) -> dict[str, tf.Variable]:
        """Return the variables of a cell by name; of slots those that an optimizer keeps for its parameters."""
        if cell.startswith("tied("):
            return self.shared(cell.removeprefix("tied(").removesuffix(")").split(", "))
        owner, _, kind = cell.rpartition(".")
        if kind == "optimizer":
            return dict(self.slots(owner))
        if kind == "buffers":
            return {f"{owner}.{name}": variable for name, variable in self.others[owner].items()}
        own = self.trained[owner].items()
        return {f"{owner}.{name}": variable for name, variable in own if self.holders[id(variable)] == 1}

    def shared(self, models: Iterable[str]) -> dict[str, tf.Variable]:
        """Return the parameters that models share with others."""
        named = ((f"{model}.{name}", each) for model in models for name, each in self.trained[model].items())
        return {name: each for name, each in named if self.holders[id(each)] > 1}

    def slots(self, optimizer: str) -> Iterator[tuple[str, tf.Variable]]:
        """Yield the slots of an optimizer, ``exp_avg of net.0.weight``."""
        stepped = self.optimizers[optimizer]
        for slot, values in stepped.slots.items():
            for parameter, value in zip(stepped.parameters, values, strict=True):
                yield f"{slot} of {self.names.get(id(parameter), 'a parameter')}", value

    def before(self, cell: str) -> Sequence[tf.Tensor]:
        """Return what the last write left in a cell of a model."""
        return [self.kept[id(each)] for each in self.tensors(cell).values() if id(each) in self.kept]

    def write(self, op: str, writes: Sequence[str]) -> None:
        """Take note of an op's writes, ``net.params@1``: what is there now is what it left."""
        for cell, _ in map(split_version, writes):
            for variable in () if cell.endswith(".optimizer") else self.tensors(cell).values():
                self.kept[id(variable)] = variable.read_value()
