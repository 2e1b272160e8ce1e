"""A finding, and what it is found in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from runtime.audit.gradients import Ledger, keep_ledger
from runtime.audit.trace import Backward, Place, Trace, Write
from runtime.audit.traced_graph import Broken, find_broken

Level: TypeAlias = Literal["error", "warning", "question", "waste"]
LEVELS: tuple[Level, ...] = ("error", "warning", "question", "waste")
"""Numbers are wrong; almost certainly not meant; only the author knows; the numbers are right, but not the time."""


class Other(NamedTuple):
    """Another line that a finding is about, with what happens there."""

    what: str
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is wrong, or may be.

    >>> import torch
    >>> import stepgraph as sg
    >>> net = torch.nn.Linear(4, 1)
    >>> opt = torch.optim.SGD(net.parameters(), 0.1)
    >>> with sg.audit() as report:
    ...     for _ in range(3):
    ...         net(torch.ones(8, 4)).square().mean().backward()
    ...         opt.step()
    >>> (finding,) = report.findings
    >>> finding.code, finding.times, [each.what for each in finding.others]
    ('leftover-grad', 2, ['first applied at', 'added to by the backward at'])
    """

    code: str
    place: Place
    """The line that is to be changed, or asked about."""
    message: str
    others: tuple[Other, ...] = ()
    """Other lines that it is about, with what happens there."""
    times: int = 1
    """How often it was found at these lines."""
    share: float | None = None
    """Of waste, the part of the time that the program spends on it."""
    level: Level | None = None
    """Another level than its code has."""

    @property
    def key(self) -> tuple[str, Place, tuple[Place, ...]]:
        """Return what makes two findings the same."""
        return self.code, self.place, tuple(each.place for each in self.others)


class Evidence:
    """A trace, with what follows from it for more than one detector."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    @cached_property
    def ledger(self) -> Ledger:
        """Return what every gradient held, and what became of it."""
        return keep_ledger(self.trace)

    @cached_property
    def broken(self) -> tuple[Broken, ...]:
        """Return the edges of the step's graph that the executed order breaks."""
        return find_broken(self.trace)

    @cached_property
    def backwards(self) -> Mapping[int, Backward]:
        """Return the backwards by their numbers."""
        return {each.number: each for each in self.trace.of(Backward)}

    @cached_property
    def steppers(self) -> Mapping[int, frozenset[str]]:
        """Return, by tensor, the optimizers that stepped it."""
        found: dict[int, set[str]] = {}
        for update in self.ledger.updates:
            for part in update.event.parts:
                found.setdefault(part.tensor, set()).add(update.event.optimizer)
        return {tensor: frozenset(names) for tensor, names in found.items()}

    @cached_property
    def written(self) -> frozenset[int]:
        """Return the parameters that code of the program writes after its first backward, as a step by hand does."""
        found = set[int]()
        begun = False
        for event in self.trace.events:
            begun = begun or isinstance(event, Backward)
            if begun and isinstance(event, Write) and event.by == "code":
                found.add(event.tensor)
        return frozenset(each for each in found if self.trace.tensors[each].kind == "params")

    @cached_property
    def trained(self) -> frozenset[str]:
        """Return the models of which an optimizer has a part."""
        owned = {tensor for each in self.trace.optimizers for tensor in each.tensors} | set(self.steppers)
        return frozenset(self.trace.model(tensor) for tensor in owned)
