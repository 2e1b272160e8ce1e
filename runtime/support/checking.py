"""Checks of a debug build, for any framework: which number is not finite first, and what it came from."""

from __future__ import annotations

import math
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, cast

from runtime.support.findings import STRICT, Done, NonFiniteReport, Suspect, split_version


class Cells(Protocol):
    """What the cells of a step hold (``net.params``), and what each tensor was left with by the last write."""

    @property
    def models(self) -> Mapping[str, object]:
        """Return the models by name."""
        ...

    @property
    def names(self) -> Mapping[int, str]:
        """Return the names of tensors by their ids: ``net.0.weight``."""
        ...

    def start(self) -> None:
        """Begin a step."""

    def tensors(self, cell: str) -> Mapping[str, object]:
        """Return the tensors of a cell by name."""
        ...

    def before(self, cell: str) -> Sequence[object]:
        """Return what the last write left in a cell."""
        ...

    def write(self, op: str, writes: Sequence[str]) -> None:
        """Take note of an op's writes."""


class StepChecks(ABC):
    """The checks of a step. None of them changes a number; the first that fails raises a Finding."""

    def __init__(self, contents: Cells, optimizers: Mapping[str, object]) -> None:
        self.contents = contents
        self.optimizers = optimizers

    @abstractmethod
    def is_tensor(self, value: object) -> bool:
        """Return whether a value is a tensor of the framework."""

    @abstractmethod
    def fault_of(self, value: object) -> str:
        """Return ``nan`` where a value holds one, else ``inf`` where it holds one, else nothing."""

    @abstractmethod
    def first_row(self, value: object) -> str:
        """Return where along the first axis a tensor is not finite for the first time."""

    @abstractmethod
    def ranges_of(self, title: str, values: Mapping[str, object]) -> tuple[str, ...]:
        """Return one note with a line per value under a title."""

    @abstractmethod
    def watch(self, name: str, value: object) -> None:
        """Watch the gradient that will flow back into a tensor."""

    @abstractmethod
    def flows(self) -> Mapping[str, str]:
        """Return what is wrong with the gradients that flowed back, by value; nothing where one is finite."""

    @abstractmethod
    def rate_of(self, optimizer: object) -> str:
        """Return the learning rate of the last update, and how many there were."""

    def start(self) -> None:
        """Begin a step; weights that are not finite before it are reported once they matter."""
        self.contents.start()
        self.done: list[Done] = []
        self.suspects: dict[str, Suspect] = {}  # by value or cell
        self.members: dict[str, tuple[str, ...]] = {}  # by gradient set: the parameters
        self.through: tuple[str, ...] = ()
        self.known: set[int] = set()  # tensors that are not finite before the step
        for cell in self.cells():
            self.suspect_cell(cell, self.faulty(cell))

    def cells(self) -> Iterator[str]:
        """Yield the cells there are at the start of a step."""
        for model in self.contents.models:
            yield from (f"{model}.params", f"{model}.buffers")
        yield from (f"{optimizer}.optimizer" for optimizer in self.optimizers)

    def faulty(self, cell: str) -> dict[str, object]:
        """Return the tensors of a cell that are not finite."""
        return {name: each for name, each in self.contents.tensors(cell).items() if self.fault_of(each)}

    def suspect_cell(self, cell: str, faulty: Mapping[str, object]) -> None:
        """Take note of what is not finite in a cell before the step; infinite buffers may be meant, as masks are."""
        self.known |= {id(tensor) for tensor in faulty.values()}
        for name, tensor in faulty.items():
            fault = self.fault_of(tensor)
            if fault == "nan" or not cell.endswith(".buffers"):
                owner = cell.rpartition(".")[0]
                ranges = self.ranges_of("there before the step:", {name: tensor})
                self.suspects[cell] = self.suspect(owner, f"{name} had {fault} before the step began", ranges)
                return

    def suspect(self, op: str, message: str, ranges: tuple[str, ...], causes: Sequence[str] = ()) -> Suspect:
        """Return a new suspect; ``causes`` are the values and cells it came from, finite or not."""
        known = tuple(self.suspects[name] for name in causes if name in self.suspects)
        return Suspect(len(self.done), op, message, ranges, known)

    def given(self, name: str, value: object) -> None:
        """Take note of an input; what a model makes of nan in it decides whether that is wrong."""
        fault = self.fault_of(value)
        if fault:
            message = f"input '{name}' {self.verb_of(value)} {fault}{self.first_row(value)}"
            self.suspects[name] = self.suspect(name, message, self.ranges_of("given:", {name: value}))
        self.done.append(Done(name, "input", (name,), {}, ()))

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
        cells = [split_version(at)[0] for at in reads]
        for name, value in outputs.items():
            fault = self.fault_of(value)
            if fault:
                message = f"op '{op}' ({kind}): its result '{name}' {self.verb_of(value)} {fault}"
                ranges = (*self.ranges_of("result:", {name: value}), *self.operands(inputs, reads))
                self.suspects[name] = self.suspect(op, message, ranges, (*inputs, *cells))
                if fault == "nan" or kind.startswith(STRICT):
                    raise self.fail(self.suspects[name])
            self.follow(name, value, inputs)
        weak = {name: weakref.ref(value) for name, value in inputs.items() if self.is_tensor(value)}
        self.done.append(Done(op, kind, tuple(outputs), weak, reads))
        self.check_written(op, kind, writes, inputs, reads)
        self.contents.write(op, writes)

    def operands(self, inputs: Mapping[str, object], reads: Sequence[str]) -> tuple[str, ...]:
        """Return the notes about what an op worked on."""
        weights: dict[str, Sequence[object]] = {}
        for at in reads:
            cell, version = split_version(at)
            owner, _, kind = cell.rpartition(".")
            name = f"{owner}@{version}" if kind == "params" else f"{owner}'s buffers" if kind == "buffers" else at
            weights[name] = self.contents.before(cell)
        held = {name: tensors for name, tensors in weights.items() if tensors}
        return (*self.ranges_of("inputs:", inputs), *self.ranges_of("weights read:", held))

    def follow(self, name: str, value: object, inputs: Mapping[str, object]) -> None:
        """Watch the gradient that will flow back into a value; the parameters of gradient sets are handed on."""
        if self.is_tensor(value):
            self.watch(name, value)
            return
        many = members_of(value)
        given = [self.members[each] for each in inputs if each in self.members]
        joined = tuple(member for members in given for member in members)
        if many is not None:
            self.members[name] = given[0] if given and len(many) == len(given[0]) else joined

    def before_gradient(self, op: str, name: str, loss: object, through: Mapping[str, Sequence[str]]) -> None:
        """Check a loss before it is differentiated; ``through`` says what the forwards on its way read."""
        fault = self.fault_of(loss)
        if fault:
            found = self.suspects.get(name)
            message = f"op '{op}' (gradient): the loss '{name}' {self.verb_of(loss)} {fault}"
            ranges = self.ranges_of("loss:", {name: loss})
            raise self.fail(self.suspect(op, message, ranges, (name,) if found else ()))
        self.through = tuple(dict.fromkeys(at for reads in through.values() for at in reads))

    def differentiated(
        self, op: str, loss: str, outputs: Mapping[str, object], parameters: Sequence[object] = ()
    ) -> None:
        """Check gradients: those of the parameters, in order, and those of values."""
        for name, value in outputs.items():
            if not self.is_tensor(value):
                self.members[name] = tuple(self.contents.names.get(id(p), "a parameter") for p in parameters)
            if self.fault_of(value):
                raise self.fail(self.blame(op, loss, name, value))
            if self.is_tensor(value):
                self.follow(name, value, {})
        self.done.append(Done(op, "gradient", tuple(outputs), {}, self.through))

    def blame(self, op: str, loss: str, name: str, value: object) -> Suspect:
        """Return what there is to tell of a gradient that is not finite though its loss is."""
        many = members_of(value)
        parts = {name: value} if many is None else dict(zip(self.members[name], many, strict=True))
        bad = {part: self.fault_of(each) for part, each in parts.items() if self.fault_of(each)}
        part, fault = next(iter(bad.items()))
        by = f"'{name}' of '{loss}'" if part == name else f"of '{loss}' by '{part}'"
        message = f"op '{op}' (gradient): the gradient {by} {self.verb_of(parts[part])} {fault}"
        ranges = self.ranges_of("gradients:", {part: parts[part] for part in bad})
        return self.suspect(op, message, (*self.find_breakers(bad), *ranges, *self.operands({}, self.through)))

    def find_breakers(self, bad: Mapping[str, str]) -> tuple[str, ...]:
        """Return a note about the ops whose derivative is at fault: a finite gradient enters, another comes out."""
        flows = self.flows()
        broken = {name for name, fault in flows.items() if fault}
        read = {cell for cell, _ in map(split_version, self.through)}
        cells = {cell for cell in read if not bad.keys().isdisjoint(self.contents.tensors(cell))}
        found = [
            each
            for each in self.done
            if any(output in flows for output in each.outputs)
            and broken.isdisjoint(each.outputs)
            and (not broken.isdisjoint(each.inputs) or not cells.isdisjoint(split_version(at)[0] for at in each.reads))
        ]
        where = " or ".join(f"'{each.op}' ({each.kind})" for each in found)
        said = (f"the loss is finite, the derivative of op {where} is not",) if found else ()
        return (*said, *(note for each in found for note in self.ranges_of(f"'{each.op}' was given:", each.operands())))

    def written(
        self, op: str, kind: str, inputs: Mapping[str, object], reads: tuple[str, ...], writes: tuple[str, ...]
    ) -> None:
        """Check what an op left in weights, statistics and slots."""
        self.check_written(op, kind, writes, inputs, reads)
        self.contents.write(op, writes)

    def check_written(
        self, op: str, kind: str, writes: Sequence[str], inputs: Mapping[str, object], reads: Sequence[str]
    ) -> None:
        """Raise a Finding for the first tensor of the written cells that was finite before the step and is not now."""
        for at in writes:
            cell, _ = split_version(at)
            for name, tensor in self.faulty(cell).items():
                if id(tensor) in self.known:
                    continue
                where = f"slot '{name}' of optimizer '{cell.rpartition('.')[0]}'" if " of " in name else f"'{name}'"
                message = f"op '{op}' ({kind}): what it wrote into {where} {self.verb_of(tensor)}"
                message = f"{message} {self.fault_of(tensor)}"
                ranges = (*self.ranges_of("written:", {name: tensor}), *self.rates(writes))
                causes = [split_version(read)[0] for read in reads]
                notes = (*ranges, *self.operands(inputs, reads))
                raise self.fail(self.suspect(op, message, notes, (*inputs, *causes)))

    def rates(self, writes: Sequence[str]) -> tuple[str, ...]:
        """Return a note per optimizer that wrote: its learning rate, and how often it was applied."""
        cells = [cell for cell, _ in map(split_version, writes) if cell.endswith(".optimizer")]
        names = [cell.removesuffix(".optimizer") for cell in cells]
        return tuple(f"optimizer '{name}': {self.rate_of(self.optimizers[name])}" for name in names)

    def returned(self, outputs: Mapping[str, object]) -> None:
        """Check the scalar outputs: no one intends them to be infinite."""
        for name, value in outputs.items():
            if self.is_tensor(value) and self.size_of(value) == 1 and self.fault_of(value):
                found = self.suspects.get(name)
                message = f"output '{name}' is {self.fault_of(value)}"
                raise self.fail(found or self.suspect(name, message, ()))

    def fail(self, suspect: Suspect) -> NonFiniteReport:
        """Return the error of a suspect."""
        return suspect.finding()

    def verb_of(self, value: object) -> str:
        """Return the verb of a message: a single number is nan, a tensor has nan."""
        return "is" if self.is_tensor(value) and not self.shape_of(value) else "has"

    def size_of(self, value: object) -> int:
        """Return how many numbers a tensor has."""
        return math.prod(self.shape_of(value))

    @abstractmethod
    def shape_of(self, value: object) -> tuple[int, ...]:
        """Return the shape of a tensor."""


def members_of(value: object) -> Sequence[object] | None:
    """Return the members of a set of gradients; None for anything else."""
    return cast("Sequence[object]", value) if isinstance(value, (list, tuple)) else None
