"""What all parts of a recorder share: the events so far, and what is running."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import nn

from runtime.audit.trace import Backward, Cut, Event, Forward, Overwritten, Place, Read, Source
from runtime.backends.torch.audit.names import Names
from runtime.backends.torch.audit.provenance import Tags
from runtime.backends.torch.audit.spent import Kernel
from runtime.backends.torch.audit.tensors import Cell, Cells, key_of
from runtime.backends.torch.audit.user_lines import find_place


class Notes(Protocol):
    """What takes notes for a port while the program runs."""

    def called(self, function: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> None:
        """Note a call of a function."""

    def begin(self) -> None:
        """Note that a model is about to run."""

    def step(self) -> None:
        """Note that an optimizer is about to step."""

    def ran(self, module: nn.Module, args: Sequence[Any], result: Any, *, recorded: bool) -> None:
        """Note a call of a model."""

    def derived(self, event: Backward, roots: Sequence[Any], inputs: Sequence[Any], result: Any) -> None:
        """Note a backward, or gradients that it returns."""

    def alias(self, result: Any, source: Any) -> None:
        """Note that two values are the same but for a factor."""

    def clipped(self, function: str) -> None:
        """Note that gradients are clipped."""

    def stepped(self, optimizer: torch.optim.Optimizer) -> None:
        """Note a step of an optimizer."""


@dataclass(slots=True)
class Running:
    """A backward that is running, and what it has read so far."""

    number: int
    place: Place
    kernels: list[Kernel] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    overwritten: list[Overwritten] = field(default_factory=list)


@dataclass(slots=True)
class Call:
    """A call of a model that is running."""

    model: nn.Module
    place: Place
    recorded: bool
    """Gradients are enabled around it; its own code may turn them off for a part."""
    inputs: frozenset[int]
    versions: dict[int, int] = field(default_factory=dict)
    """Cell -> the version that it read first."""


class Overwrite(NamedTuple):
    """A write to a value that is no cell: which bytes, in which call of a function."""

    span: tuple[int, int]
    function: int
    place: Place
    operation: str


class Root:
    """A loss that had its backward. Its node of the graph keeps the object, so that both live equally long."""

    __slots__ = ("__weakref__", "kept", "place", "turns")

    def __init__(self, place: Place, turns: Mapping[int, int]) -> None:
        self.place = place
        """The backward."""
        self.turns = dict(turns)
        """Optimizer -> how often it had been stepped."""
        self.kept: Place | None = None
        """Where another value was made of it afterwards."""


class CutMark:
    """A cut, with the number of the node whose value lost its graph there, 0 for none."""

    __slots__ = ("cut", "number", "successor")

    def __init__(self, cut: Cut, number: int = 0) -> None:
        self.cut, self.number = cut, number
        self.successor = -1

    def become(self, kind: Literal["first_order", "dead_term"], cuts: list[CutMark]) -> int:
        """Return the number of the cut as one of another kind, which is added to the others once."""
        if self.successor < 0:
            cuts.append(CutMark(replace(self.cut, kind=kind)))
            self.successor = len(cuts) - 1
        return self.successor


class Log:
    """The events of a program, its cells and names, and the calls that are running."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.cells = Cells()
        self.names = Names(self.cells)
        self.tags = Tags()
        self.loose = Tags()
        """Of values that are made of a forward without a graph."""
        self.cuts: list[CutMark] = []
        self.busy = False
        """The recorder itself computes: nothing of it is an event."""
        self.calls: list[Call] = []
        self.layers: list[nn.Module] = []
        self.recorded: list[bool] = []
        """Of every layer that runs, whether gradients are enabled around it."""
        self.running: list[Running] = []
        self.stepping: list[torch.optim.Optimizer] = []
        self.stepped: dict[int, int] = {}
        """Optimizer -> how often it has been stepped, skipped steps included."""
        self.unfilled: set[int | None] = set()
        """Storages that the step which runs has made without a value."""
        self.scaling = False
        self.written: dict[int, list[Overwrite]] = {}
        """Storage -> the writes to values in it that are no cells."""
        self.function = 0
        """The number of the call of a function that runs, or ran last."""
        self.sources: dict[int, frozenset[Source]] = {}
        """Storage -> what the value is made of that the operation which now runs writes there."""
        self.roots: list[weakref.ref[Root]] = []
        """The losses that had their backward and may still be there, in order."""
        self.tape: Notes | None = None
        """What takes notes for a port, if anything does."""
        self.unseen: dict[str, None] = {}
        self._values: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}
        self.backwards = 0
        self.mixtures = 0
        self.seconds = 0.0
        """The time of all kernels on the CPU, from the first call of a model."""

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Compute something that is no event, as the program would not have been there."""
        before, self.busy = self.busy, True
        try:
            yield
        finally:
            self.busy = before

    @property
    def backward(self) -> int:
        """Return the number of the innermost backward that runs, 0 for none."""
        return self.running[-1].number if self.running else 0

    def add(self, event: Event) -> None:
        """Append an event."""
        self.events.append(event)

    def forwards_of(self, values: Iterable[torch.Tensor]) -> frozenset[int]:
        """Return the forwards without a graph that values are made of."""
        return frozenset().union(*(self.loose.of(each).forwards for each in values)) if self.loose else frozenset()

    def use(self, values: Iterable[torch.Tensor]) -> None:
        """Note that something with a graph is made of values."""
        for position in self.forwards_of(values):
            event = self.events[position]
            assert isinstance(event, Forward)
            self.events[position] = replace(event, moves="")

    def version_of(self, tensor: torch.Tensor) -> tuple[Cell | None, int]:
        """Return the cell that a tensor shares memory with, if any, and how often that memory has been written."""
        cell = next(iter(self.cells.find(tensor)), None)
        if cell is not None:
            return cell, cell.version
        key = key_of(tensor)
        return None, len(self.written.get(key, ())) if key is not None else 0

    def sources_of(self, tensor: Any) -> frozenset[Source]:
        """Return what a tensor is, or is made of: cells and gradients of cells."""
        if not isinstance(tensor, torch.Tensor):
            return frozenset()
        cells = self.cells.find(tensor)
        if cells:
            return frozenset(Source(cell.number) for cell in cells)
        cell = self.cells.gradient_cell(tensor)
        if cell is not None:
            return frozenset({Source(cell.number, True)})
        return self.tags.of(tensor).sources

    def number_of(self, value: torch.Tensor) -> int:
        """Return a number that a value and its views share while it lives."""
        key = key_of(value) or id(value)
        known = self._values.get(key)
        if known is not None and known[0]() is not None:
            return known[1]
        number = known[1] + 1_000_000 if known is not None else len(self._values) + 1
        self._values[key] = (weakref.ref(value), number)
        return number

    def place(self) -> Place:
        """Return the user's line that runs."""
        return find_place()
