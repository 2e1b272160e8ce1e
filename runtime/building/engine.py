"""What engines share: the steps, gates and running metrics of an executed module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar, runtime_checkable

from compiler.ir.program import Program
from runtime.backend import Engine
from runtime.holding.counts import align_counts
from runtime.support.clocks import Clock, Gates


class Running(Protocol):
    """A running metric."""

    since: str | int

    def reset(self) -> None:
        """Start anew."""


class Executed(Protocol):
    """An executed module that knows its program."""

    @property
    def program(self) -> Program:
        """Return the program."""
        ...

    @property
    def names(self) -> Mapping[str, object]:
        """Return its globals."""
        ...


@runtime_checkable
class Forgetful(Protocol):
    """What keeps something of one step until the next."""

    def begin(self) -> None:
        """Forget the step before."""


class Counting(Protocol):
    """What counts in an executed module."""

    @property
    def clock(self) -> Clock:
        """Return the steps of every mode."""
        ...

    @property
    def gates(self) -> Gates | None:
        """Return the gates; None where every op fires in every step."""
        ...

    def metrics(self, mode: str) -> Mapping[str, Running]:
        """Return the running metrics of a mode, by op."""
        ...


M = TypeVar("M", bound=Counting)


class ModuleEngine(Engine, Generic[M]):
    """An engine over a module that knows what fires and how far it is."""

    module: M
    loaded: Executed
    counts: bool
    """The engine is to count the steps: nothing in the module depends on their number."""

    def forget(self) -> None:
        """Forget what the last step found out about its gradients."""
        verdicts = self.loaded.names.get("verdicts")
        if isinstance(verdicts, Forgetful):
            verdicts.begin()

    def count(self, mode: str) -> None:
        """Count a step that came to its end."""
        steps = self.module.clock.steps
        steps[mode] = steps.get(mode, 0) + 1

    def align(self) -> None:
        """Make what gates have counted, as a state has it, fit the clocks of the program."""
        if self.module.gates is not None:
            align_counts(self.loaded.program, self.module.clock.steps, self.module.gates)

    def told(self, dataset: str | None) -> tuple[str | None, ...]:
        """Return the data set as a further argument of ``step``, where the module takes one."""
        return (dataset,) if self.loaded.program.datasets else ()

    def fired(self, mode: str) -> tuple[str, ...]:
        """Return the gated ops that fired in the last step of a mode."""
        gates = self.module.gates
        return () if gates is None else gates.fired.get(mode, ())

    def steps(self, mode: str) -> int:
        """Return how many steps of a mode were finished."""
        return self.module.clock.steps.get(mode, 0)

    def reset(self, mode: str) -> None:
        """Start a mode anew: its step number, what its gates counted, its running metrics."""
        module, gates = self.module, self.module.gates
        module.clock.steps.pop(mode, None)
        if gates is not None:
            gates.counts[mode] = dict.fromkeys(gates.counts.get(mode, ()), 0)
            gates.fired.pop(mode, None)
        for metric in module.metrics(mode).values():
            metric.reset()

    def end_epoch(self, mode: str) -> None:
        """Start the metrics of a mode anew that run for an epoch."""
        for metric in self.module.metrics(mode).values():
            if metric.since == "epoch":
                metric.reset()

    def averaged(self) -> frozenset[str]:
        """Return the averages that stand in for their models outside train mode."""
        gates = self.module.gates
        return frozenset() if gates is None else frozenset(gates.averaged)
