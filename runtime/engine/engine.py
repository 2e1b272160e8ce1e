"""What engines share: the steps, gates and running metrics of an executed module."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, Protocol, cast, final, runtime_checkable

from msgspec import Struct

from compiler.ir.program import Program
from graphspec.declare.graph import GraphSpec
from graphspec.diagnostics import Diagnostic
from runtime.codegen.resources import find_training_modes
from runtime.engine.backend import Engine
from runtime.engine.contents import Contents, Metric, Stepping, find_averages
from runtime.engine.errors import Framework, diagnose
from runtime.engine.load import Loaded, has_begun
from runtime.engine.restore import align_counts, read_state, restore_state
from runtime.problems import problem
from runtime.processes import LOST
from runtime.state import State
from runtime.step import StepError
from runtime.support.clocks import Clock, Gates


class Running(Metric, Protocol):
    """A running metric that can start anew."""

    since: str | int

    def reset(self) -> None:
        """Start anew."""


class Measuring(Protocol):
    """A register that measures the gradients of every update."""

    def read(self) -> dict[str, float]:
        """Return the norms of the last step by update."""
        ...


@runtime_checkable
class Forgetful(Protocol):
    """What keeps something of one step until the next."""

    def begin(self) -> None:
        """Forget the step before."""


class ModuleEngine(Engine):
    """An engine over an executed module: its clock, its gates, its running metrics, and its state."""

    framework: ClassVar[Framework]
    traced: ClassVar[bool]
    """Functions are traced: an error inside one comes from building its graph."""
    loaded: Loaded[object]
    spec: GraphSpec
    clock: Clock
    flags: Flags
    step: Callable[..., dict[str, object]]
    """The module's own function."""
    counts: bool
    """The engine is to count the steps: nothing in the module depends on their number."""

    @property
    def backend(self) -> str:
        """Return the framework."""
        return self.loaded.program.backend

    @property
    def gates(self) -> Gates | None:
        """Return the gates; None where every op fires in every step."""
        return cast("Gates | None", self.loaded.names.get("gates"))

    def metrics(self, mode: str) -> Mapping[str, Running]:
        """Return the running metrics of a mode, by op."""
        registered = cast("Mapping[str, Mapping[str, Running]]", self.loaded.names.get("METRICS", {}))
        return registered.get(mode, {})

    def notes(self) -> Iterator[str]:
        """Yield notes on metrics that a checkpoint does not keep."""
        metrics = {op: metric for mode in self.loaded.program.modes for op, metric in self.metrics(mode.mode).items()}
        for op, metric in metrics.items():
            if metric.state() is None:
                yield f"metric '{op}' has no state_dict and load_state_dict: it starts from zero when a run is resumed"

    def norms(self) -> Mapping[str, float]:
        """Return the norms of the gradients of the last step by update, where the step was built to measure them."""
        variable = self.loaded.emitted.names.norms
        return cast("Measuring", self.loaded.names[variable]).read() if variable else {}

    def applied(self) -> dict[str, int]:
        """Return how often every optimizer was applied."""
        optimizers = cast("Mapping[str, Stepping]", self.loaded.names["OPTIMIZERS"])
        return {cell: self.count_applied(optimizer) for cell, optimizer in optimizers.items()}

    def count_applied(self, optimizer: Stepping) -> int:
        """Return how often an optimizer was applied."""
        return int(optimizer.applied)

    @abstractmethod
    def contents(self, applied: Mapping[str, int]) -> Contents:
        """Return all that training changes; ``applied`` says how often the optimizers are to be applied.

        It depends on that: the momenta of SGD begin with the first update.
        """

    def state(self, *, whole: bool = True) -> State:
        """Return everything that training changes, copied to the host; not ``whole``: what this process has of it.

        Raises SpecError: GS259 where another process is gone, GS267 where a user's module, metric or optimizer keeps
        what a checkpoint cannot.
        """
        try:
            return read_state(self, whole=whole)
        except Exception as error:
            if not self.framework.is_lost(error):
                raise
            notes = (f"{self.framework.title}: {self.framework.clean(error)}",)
            message = "the other processes did not give their parts of the state: one has ended, or hangs"
            raise problem(LOST, message, notes=notes, help="see what the other process has printed last") from error

    def restore(self, state: State) -> None:
        """Restore a state: in place, and nothing at all where something does not fit.

        Raises SpecError: GS264 for every name that is missing, not expected, or of another shape or type.
        """
        restore_state(self, state)
        self.forget()
        if self.gates is not None:  # the state may be of a run with other clocks
            align_counts(self.loaded.program, self.clock.steps, self.gates)

    def forget(self) -> None:
        """Forget what the last step found about its gradients."""
        verdicts = self.loaded.names.get("verdicts")
        if isinstance(verdicts, Forgetful):
            verdicts.begin()

    def run(self, batch: Mapping[str, object], mode: str, dataset: str | None = None) -> dict[str, object]:
        """Take one step; raise StepError with the op, its place and the user's frames where it fails."""
        self.flags.check(mode)
        try:
            outputs = self.call(batch, mode) if dataset is None else self.call(batch, mode, dataset)
        except Exception as error:
            found, begun = diagnose(error, self.loaded, self.spec, self.framework), self.has_begun(error, mode)
        else:
            if self.counts:
                steps = self.clock.steps
                steps[mode] = steps.get(mode, 0) + 1
            return outputs
        raise StepError([found], self.spec.texts(), begun=begun)

    def expect(self, rows: int | None) -> None:
        """Ignore the number: only processes that exchange it can save the message."""

    def call(self, *given: object) -> dict[str, object]:
        """Call the module's own ``step``."""
        return self.step(*given)

    def has_begun(self, error: BaseException, mode: str) -> bool:
        """Return whether a step that raised had already changed state that outlives it."""
        return has_begun(error, self.loaded, mode, traced=self.traced)

    def fired(self, mode: str) -> tuple[str, ...]:
        """Return the gated ops that fired in the last step of a mode."""
        gates = self.gates
        return () if gates is None else gates.fired.get(mode, ())

    def steps(self, mode: str) -> int:
        """Return how many steps of a mode were finished."""
        return self.clock.steps.get(mode, 0)

    def reset(self, mode: str) -> None:
        """Start a mode anew: its step number, what its gates counted, its running metrics."""
        self.clock.steps.pop(mode, None)
        if self.gates is not None:
            self.gates.counts[mode] = dict.fromkeys(self.gates.counts.get(mode, ()), 0)
            self.gates.applied[mode] = dict.fromkeys(self.gates.applied.get(mode, ()), 0)
            self.gates.fired.pop(mode, None)
        for metric in self.metrics(mode).values():
            metric.reset()

    def end_epoch(self, mode: str) -> None:
        """Start the metrics of a mode anew that run for an epoch."""
        for metric in self.metrics(mode).values():
            if metric.since == "epoch":
                metric.reset()

    def averaged(self) -> frozenset[str]:
        """Return the averages that were taken: those without a gate in every finished step of their mode."""
        modes, gates = self.loaded.program.modes, self.gates
        gated = frozenset[str]().union(*(find_averages(mode, gated=True) for mode in modes))
        free = (find_averages(mode, gated=False) for mode in modes if self.steps(mode.mode))
        return gated.intersection(() if gates is None else gates.taken).union(*free)


@final
class Flags(Struct, frozen=True, kw_only=True):
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
        unfrozen: dict[str, list[str]] = {}
        frozen: dict[str, list[str]] = {}
        for ((model, name), part), was in zip(self.parts.items(), self.first, strict=True):
            if self.read(part) != was:
                unfrozen.setdefault(model, [])
                (frozen if was else unfrozen).setdefault(model, []).append(name)
        problems: list[Diagnostic] = []
        for model, names in unfrozen.items():
            notes = [f"unfrozen since then: {', '.join(names)}"] if names else []
            notes += [f"frozen since then: {', '.join(frozen[model])}"] if model in frozen else []
            found = Diagnostic(
                code="GS269",
                message=f"the trainable parameters of model {model!r} have changed since the step was built",
                span=self.spec.span("models", model, key=True),
                notes=tuple(notes),
                help="build the step again from the current models; parameters of `layers` are frozen by `groups`",
            )
            problems.append(found)
        raise StepError(problems, self.spec.texts())
