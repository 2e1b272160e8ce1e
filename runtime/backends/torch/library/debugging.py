"""Checks of a debug build: is every number finite, and is every gradient taken at the weights its forwards read."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from runtime.backends.torch.library.contents import Contents, split_version
from runtime.backends.torch.library.ranges import fault_of, find_fault, first_row, ranges_of

STRICT = ("loss", "metric", "transform")
"""Kinds of ops whose results may not be infinite either; elsewhere an infinity may be meant, as in a mask."""


class Finding(Exception):
    """Tell at which op the numbers of a step (GS261) or the order of its writes (GS262) went wrong."""

    def __init__(self, code: str, op: str, message: str, notes: tuple[str, ...], remedy: str) -> None:
        super().__init__("\n".join((f"{code}: {message}", *notes, remedy)))
        self.code, self.op, self.message, self.notes, self.remedy = code, op, message, notes, remedy


@dataclass(frozen=True)
class Suspect:
    """Something that is not finite: the op it came from, what there is to tell, and what it may have come from."""

    order: int
    op: str
    message: str
    ranges: tuple[str, ...]
    causes: tuple[Suspect, ...] = ()

    def origin(self) -> Suspect:
        """Return the first of what it came from; a value between that is finite ends the trail."""
        return min((cause.origin() for cause in self.causes), key=lambda each: each.order, default=self)

    def finding(self) -> Finding:
        """Return the error that names the origin, and how far it came from there."""
        origin = self.origin()
        notes = origin.ranges
        if origin is not self:
            notes = (*notes, f"it came to light at {self.message}", *self.ranges)
        remedy = "take the cause away where it first appears: what comes after it only hands it on"
        return Finding("GS261", origin.op, origin.message, notes, remedy)


@dataclass(frozen=True)
class Done:
    """An op that has run in this step: what it made of what, and the versions of weights that it read.

    What it worked on is kept by name only as long as the step itself keeps it.
    """

    op: str
    kind: str
    outputs: tuple[str, ...]
    inputs: Mapping[str, weakref.ref[torch.Tensor]]
    reads: tuple[str, ...]

    def operands(self) -> dict[str, torch.Tensor]:
        """Return those of the values it worked on that are still there."""
        found = {name: value() for name, value in self.inputs.items()}
        return {name: value for name, value in found.items() if value is not None}


class Checks:
    """The checks of a step. None of them changes a number; the first that fails raises a Finding."""

    def __init__(self, models: Mapping[str, nn.Module], optimizers: Mapping[str, Any]) -> None:
        self.contents = Contents(models, optimizers)
        self.optimizers = optimizers

    def start(self) -> None:
        """Begin a step; weights that are not finite before it are told once they matter."""
        self.contents.start()
        self.done: list[Done] = []
        self.suspects: dict[str, Suspect] = {}  # by value or cell
        self.flowing: dict[str, str] = {}  # by value: what is wrong with its gradient, nothing where it is finite
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

    def faulty(self, cell: str) -> dict[str, torch.Tensor]:
        """Return the tensors of a cell that are not finite."""
        return {name: each for name, each in self.contents.tensors(cell).items() if find_fault(each)}

    def suspect_cell(self, cell: str, faulty: Mapping[str, torch.Tensor]) -> None:
        """Take note of what is not finite in a cell before the step; infinite buffers may be meant, as masks are."""
        self.known |= {id(tensor) for tensor in faulty.values()}
        for name, tensor in faulty.items():
            fault = find_fault(tensor)
            if fault == "nan" or not cell.endswith(".buffers"):
                owner = cell.rpartition(".")[0]
                ranges = ranges_of("there before the step:", {name: tensor})
                self.suspects[cell] = self.suspect(owner, f"{name} had {fault} before the step began", ranges)
                return

    def suspect(self, op: str, message: str, ranges: tuple[str, ...], causes: Sequence[str] = ()) -> Suspect:
        """Return a new suspect; ``causes`` are the values and cells it came from, finite or not."""
        known = tuple(self.suspects[name] for name in causes if name in self.suspects)
        return Suspect(len(self.done), op, message, ranges, known)

    def given(self, name: str, value: Any) -> None:
        """Take note of an input; what a model makes of nan in it decides whether that is wrong."""
        fault = fault_of(value)
        if fault:
            message = f"input '{name}' {verb_of(value)} {fault}{first_row(value)}"
            self.suspects[name] = self.suspect(name, message, ranges_of("given:", {name: value}))
        self.done.append(Done(name, "input", (name,), {}, ()))

    def defined(
        self,
        op: str,
        kind: str,
        outputs: Mapping[str, Any],
        inputs: Mapping[str, Any],
        reads: tuple[str, ...] = (),
        writes: tuple[str, ...] = (),
    ) -> None:
        """Check what an op made, and the statistics it wrote: nan is found here, inf where it may not be."""
        self.contents.watch_strangers(op, reads)
        cells = [split_version(at)[0] for at in reads]
        for name, value in outputs.items():
            fault = fault_of(value)
            if fault:
                message = f"op '{op}' ({kind}): its result '{name}' {verb_of(value)} {fault}"
                ranges = (*ranges_of("result:", {name: value}), *self.operands(inputs, reads))
                self.suspects[name] = self.suspect(op, message, ranges, (*inputs, *cells))
                if fault == "nan" or kind.startswith(STRICT):
                    raise self.suspects[name].finding()
            self.follow(name, value, inputs)
        weak = {name: weakref.ref(value) for name, value in inputs.items() if isinstance(value, torch.Tensor)}
        self.done.append(Done(op, kind, tuple(outputs), weak, reads))
        self.check_written(op, kind, writes, inputs, reads)
        self.contents.write(op, writes)

    def operands(self, inputs: Mapping[str, Any], reads: Sequence[str]) -> tuple[str, ...]:
        """Return the notes about what an op worked on."""
        weights = {}
        for at in reads:
            cell, version = split_version(at)
            owner, _, kind = cell.rpartition(".")
            name = f"{owner}@{version}" if kind == "params" else f"{owner}'s buffers" if kind == "buffers" else at
            weights[name] = self.contents.before(cell)
        held = {name: tensors for name, tensors in weights.items() if tensors}
        return (*ranges_of("inputs:", inputs), *ranges_of("weights read:", held))

    def follow(self, name: str, value: Any, inputs: Mapping[str, Any]) -> None:
        """Watch the gradient that will flow back into a value; the parameters of gradient sets are handed on."""
        if isinstance(value, torch.Tensor):
            if value.requires_grad:
                value.register_hook(lambda gradient: self.flowing.__setitem__(name, fault_of(gradient)))
            return
        if not isinstance(value, (list, tuple)):
            return
        given = [self.members[each] for each in inputs if each in self.members]
        joined = tuple(member for members in given for member in members)
        self.members[name] = given[0] if given and len(value) == len(given[0]) else joined

    def before_gradient(self, op: str, name: str, loss: Any, through: Mapping[str, Sequence[str]]) -> None:
        """Check a loss, and that the weights are still those that the forwards on the gradient's path read."""
        fault = fault_of(loss)
        if fault:
            found = self.suspects.get(name)
            message = f"op '{op}' (gradient): the loss '{name}' {verb_of(loss)} {fault}"
            ranges = ranges_of("loss:", {name: loss})
            raise self.suspect(op, message, ranges, (name,) if found else ()).finding()
        for forward, reads in through.items():
            for cell, version in map(split_version, reads):
                self.check_version(op, name, forward, cell, version)
        self.flowing, self.through = {}, tuple(dict.fromkeys(at for reads in through.values() for at in reads))

    def check_version(self, op: str, loss: str, forward: str, cell: str, version: int) -> None:
        """Check that a cell holds what a forward read of it."""
        writer, now = self.contents.writers.get(cell, ""), self.contents.versions.get(cell, 0)
        changed = self.contents.find_changed(cell)
        if now == version and not changed:
            return
        message = f"op '{op}' (gradient): the forward '{forward}' read {cell}@{version}, which is no longer there"
        if now != version:
            note = f"op '{writer}' wrote {cell}@{now} before the gradient of '{loss}' was taken"
            remedy = "no compiled plan has this order; the program was changed after it was compiled"
        else:
            seen = self.contents.strangers.get(cell)
            when = f"while op '{seen}' ran, or before it" if seen else "after the last op that read it"
            note = f"'{changed}' was written by no op of the step, {when}"
            remedy = "look for hooks and functions of yours that write weights (`.data`, `torch.no_grad()`)"
        raise Finding("GS262", op, message, (note,), remedy)

    def differentiated(self, op: str, loss: str, outputs: Mapping[str, Any], parameters: Sequence[Any] = ()) -> None:
        """Check gradients: those of the parameters, in order, and those of values."""
        for name, value in outputs.items():
            if not isinstance(value, torch.Tensor):
                self.members[name] = tuple(self.contents.names.get(id(p), "a parameter") for p in parameters)
            if fault_of(value):
                raise self.blame(op, loss, name, value).finding()
            if isinstance(value, torch.Tensor):
                self.follow(name, value, {})
        self.done.append(Done(op, "gradient", tuple(outputs), {}, self.through))

    def blame(self, op: str, loss: str, name: str, value: Any) -> Suspect:
        """Return what there is to tell of a gradient that is not finite though its loss is."""
        parts = {name: value} if isinstance(value, torch.Tensor) else dict(zip(self.members[name], value, strict=True))
        bad = {part: fault_of(each) for part, each in parts.items() if fault_of(each)}
        part, fault = next(iter(bad.items()))
        by = f"'{name}' of '{loss}'" if part == name else f"of '{loss}' by '{part}'"
        message = f"op '{op}' (gradient): the gradient {by} {verb_of(parts[part])} {fault}"
        ranges = (*ranges_of("gradients:", {part: parts[part] for part in bad}), *self.operands({}, self.through))
        return self.suspect(op, message, (*self.find_breakers(bad), *ranges))

    def find_breakers(self, bad: Mapping[str, str]) -> tuple[str, ...]:
        """Return a note about the ops whose derivative is at fault: a finite gradient enters, another comes out."""
        broken = {name for name, fault in self.flowing.items() if fault}
        cells = {
            cell
            for cell, _ in map(split_version, self.through)
            if not bad.keys().isdisjoint(self.contents.tensors(cell))
        }
        found = [
            each
            for each in self.done
            if any(output in self.flowing for output in each.outputs)
            and broken.isdisjoint(each.outputs)
            and (not broken.isdisjoint(each.inputs) or not cells.isdisjoint(split_version(at)[0] for at in each.reads))
        ]
        where = " or ".join(f"'{each.op}' ({each.kind})" for each in found)
        said = (f"the loss is finite, the derivative of op {where} is not",) if found else ()
        return (*said, *(note for each in found for note in ranges_of(f"'{each.op}' was given:", each.operands())))

    def written(
        self, op: str, kind: str, inputs: Mapping[str, Any], reads: tuple[str, ...], writes: tuple[str, ...]
    ) -> None:
        """Check what an op left in weights, statistics and slots, and tell autograd that it wrote."""
        self.check_written(op, kind, writes, inputs, reads)
        self.contents.write(op, writes)
        self.contents.announce(writes)

    def check_written(
        self, op: str, kind: str, writes: Sequence[str], inputs: Mapping[str, Any], reads: Sequence[str]
    ) -> None:
        """Raise a Finding for the first tensor of the written cells that was finite before the step and is not now."""
        for at in writes:
            cell, _ = split_version(at)
            for name, tensor in self.faulty(cell).items():
                if id(tensor) in self.known:
                    continue
                where = f"slot '{name}' of optimizer '{cell.rpartition('.')[0]}'" if " of " in name else f"'{name}'"
                message = f"op '{op}' ({kind}): what it wrote into {where} {verb_of(tensor)} {find_fault(tensor)}"
                ranges = (*ranges_of("written:", {name: tensor}), *self.rates(writes), *self.operands(inputs, reads))
                causes = [split_version(read)[0] for read in reads]
                raise self.suspect(op, message, ranges, (*inputs, *causes)).finding()

    def rates(self, writes: Sequence[str]) -> tuple[str, ...]:
        """Return a note per optimizer that wrote: its learning rate, and how often it was applied."""
        names = [
            cell.removesuffix(".optimizer") for cell, _ in map(split_version, writes) if cell.endswith(".optimizer")
        ]
        used = {name: self.optimizers[name] for name in names}
        return tuple(
            f"optimizer '{name}': lr {each.options.get('lr')}, update {each.applied}" for name, each in used.items()
        )

    def returned(self, outputs: Mapping[str, Any]) -> None:
        """Check the outputs that are single numbers: nobody means one to be infinite."""
        for name, value in outputs.items():
            if isinstance(value, torch.Tensor) and value.numel() == 1 and fault_of(value):
                found = self.suspects.get(name)
                message = f"output '{name}' is {fault_of(value)}"
                raise (found or self.suspect(name, message, ())).finding()


def verb_of(value: Any) -> str:
    """Return how a message goes on: a single number is nan, a tensor has nan."""
    return "is" if isinstance(value, torch.Tensor) and value.ndim == 0 else "has"
