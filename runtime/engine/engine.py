"""What engines share: the steps, gates and running metrics of an executed module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, final, runtime_checkable

from compiler.ir.program import Program
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from runtime.codegen.resources import find_training_modes
from runtime.engine.backend import Engine
from runtime.engine.restore import align_counts
from runtime.step import StepError
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
    """An engine over a module that knows which ops fire and counts its steps."""

    module: M
    loaded: Executed
    counts: bool
    """The engine is to count the steps: nothing in the module depends on their number."""

    def forget(self) -> None:
        """Forget what the last step found about its gradients."""
        verdicts = self.loaded.names.get("verdicts")
        if isinstance(verdicts, Forgetful):
            verdicts.begin()

    def count(self, mode: str) -> None:
        """Count a step that finished."""
        steps = self.module.clock.steps
        steps[mode] = steps.get(mode, 0) + 1

    def align(self) -> None:
        """Adjust the counts of gates, as restored from a state, to the clocks of the program."""
        if self.module.gates is not None:
            align_counts(self.loaded.program, self.module.clock.steps, self.module.gates)

    def dataset_arguments(self, dataset: str | None) -> tuple[str | None, ...]:
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


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """Which parts of some models were trainable when their step was built; a change since then would have no effect."""

    spec: GraphSpec
    modes: frozenset[str]
    """The modes that train a part with a flag; other modes do not depend on flags."""
    parts: Mapping[tuple[str, str], object]
    """The parts with a flag, by model and name."""
    read: Callable[[object], bool]
    first: list[bool]

    @classmethod
    def of(
        cls, program: Program, spec: GraphSpec, parts: Mapping[tuple[str, str], object], read: Callable[[object], bool]
    ) -> Flags:
        """Return the flags of a step that was just built; ``read`` returns the flag of a part."""
        first = [read(part) for part in parts.values()]
        modes = find_training_modes(program) if parts else frozenset[str]()
        return cls(spec=spec, modes=modes, parts=parts, read=read, first=first)

    def check(self, mode: str) -> None:
        """Raise StepError (GS269) where a flag has changed since then, in a mode that trains."""
        if mode not in self.modes or list(map(self.read, self.parts.values())) == self.first:
            return
        thawed: dict[str, list[str]] = {}
        frozen: dict[str, list[str]] = {}
        for ((model, name), part), was in zip(self.parts.items(), self.first, strict=True):
            if self.read(part) != was:
                thawed.setdefault(model, [])
                (frozen if was else thawed).setdefault(model, []).append(name)
        problems: list[Diagnostic] = []
        for model, names in thawed.items():
            notes = [f"let train since then: {', '.join(names)}"] if names else []
            notes += [f"frozen since then: {', '.join(frozen[model])}"] if model in frozen else []
            found = Diagnostic(
                code="GS269",
                message=f"what is to be trained of model {model!r} is not what it was when the step was built",
                span=self.spec.span("models", model, key=True),
                notes=tuple(notes),
                help="build the step anew from the models as they are; parameters of `layers` are frozen by `groups`",
            )
            problems.append(found)
        raise StepError(problems, self.spec.texts())
